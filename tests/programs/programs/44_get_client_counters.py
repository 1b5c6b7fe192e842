from client import get_client
from servers.shop import list_orders, count_orders

await list_orders(status="shipped")
await list_orders(status="pending")
await count_orders()

client = get_client()
print(f"Tools called: {client.call_count}")
print(f"Names: {client.tools_called}")
print(f"Tokens used: {client.total_tokens}")
