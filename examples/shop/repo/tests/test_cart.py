import unittest

from shop.cart import left_after


class Cart(unittest.TestCase):
    def test_an_order_takes_items_from_the_stock(self):
        self.assertEqual(left_after(147, 40), 107)


if __name__ == "__main__":
    unittest.main()
