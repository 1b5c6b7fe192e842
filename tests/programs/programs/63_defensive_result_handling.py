import json
from servers.shop import inventory_report, list_orders, get_policy
from servers.crm_tools import get_contact

def parse(result):
    """Tool results may be a JSON string or already parsed."""
    if isinstance(result, str):
        try:
            return json.loads(result)
        except json.JSONDecodeError:
            return result
    return result

report = parse(await inventory_report())
print("Out of stock:", ", ".join(report["out_of_stock"]))
orders = parse(await list_orders(limit=2))
print("Orders:", [o["id"] for o in orders])
contact = parse(await get_contact("c-2"))
print("Contact:", contact["name"])
print("Policy:", parse(await get_policy("shipping")))
