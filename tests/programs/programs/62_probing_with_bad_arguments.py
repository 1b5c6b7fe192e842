from servers.shop import get_order, in_stock

# Check that the tools reject nonsense before relying on them
for label, attempt in [
    ("None", lambda: get_order(order_id=None)),
    ("unknown SKU", lambda: in_stock(sku="XX-99")),
]:
    try:
        await attempt()
        print(label, "accepted")
    except Exception as exc:
        print(label, "rejected")

try:
    await get_order(order_id=None)
except Exception:
    print("None rejected again")
