# Save a reusable skill so that I can import it next time
skill_code = '''
from servers.shop import list_orders

async def pending_total(customer: str | None = None) -> float:
    """Total value of the pending orders, optionally of one customer."""
    orders = await list_orders(status="pending", customer=customer)
    return round(sum(order["total"] for order in orders), 2)
'''

with open('./skills/pending_total.py', 'w') as f:
    f.write(skill_code)

from skills.pending_total import pending_total

print(await pending_total())
print(await pending_total("Grace Hopper"))
