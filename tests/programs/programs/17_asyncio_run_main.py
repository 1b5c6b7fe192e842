import asyncio

from servers.shop import list_orders, get_order


async def main():
    """Print the largest pending order and where it goes."""
    orders = await list_orders(status="pending")
    largest = max(orders, key=lambda order: order["total"])
    detail = await get_order(order_id=largest["id"])
    address = detail["customer"]["address"]
    print(f"{largest['id']} ({largest['total']:.2f}) goes to {address['city']}, {address['country']}")


if __name__ == "__main__":
    asyncio.run(main())
