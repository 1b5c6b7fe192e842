import inspect
from servers.shop import search_products

print(search_products.__name__)
print(list(inspect.signature(search_products).parameters))
print("Search products by words in their name" in search_products.__doc__)
help(search_products)
