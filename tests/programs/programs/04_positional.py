from servers.shop import get_order, search_products, in_stock

order = await get_order("O-1001")
print("Order:", order["id"], order["customer"]["name"])

books = await search_products("", "books", 30)
for book in books:
    available = await in_stock(book["sku"], 1)
    print(f"{book['name']}: {'in stock' if available else 'sold out'}")
