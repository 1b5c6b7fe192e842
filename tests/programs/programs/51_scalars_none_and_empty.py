from servers.shop import count_orders, average_order_value, in_stock, get_invoice_number, delete_order, clear_cart

count = await count_orders()
average = await average_order_value("shipped")
available = await in_stock("BK-02")
invoice = await get_invoice_number("O-1001")
deleted = await delete_order("O-1004")
cleared = await clear_cart("Ada Lovelace")

for name, value in [("count", count), ("average", average), ("available", available), ("invoice", invoice), ("deleted", deleted)]:
    print(f"{name} = {value!r} ({type(value).__name__})")
if not cleared:
    print("cart is empty")
print("now", await count_orders(), "orders")
