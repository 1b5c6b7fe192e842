from servers.shop import get_order

order = await get_order(order_id="O-1001")
print(f"Order {order.id}: {order.total} for {order.customer.name}")
