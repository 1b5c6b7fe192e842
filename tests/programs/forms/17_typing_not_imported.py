from servers.shop import list_orders

async def totals(status: Optional[str] = None) -> Dict[str, float]:
    found: List[dict] = await list_orders(status=status)
    return {order["id"]: order["total"] for order in found}

print(await totals("cancelled"))
