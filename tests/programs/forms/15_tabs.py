```py
from servers.shop import list_orders

async def main():
	for order in await list_orders(limit=2):
		if order["total"] > 70:
			print(order["id"])

await main()```