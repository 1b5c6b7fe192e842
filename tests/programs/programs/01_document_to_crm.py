# Read an order from the shop and attach it to the customer's record in the CRM
from servers.shop import get_order
from servers.crm_tools import create_note

order = await get_order(order_id="O-1002")
summary = "; ".join(f"{line['quantity']} x {line['sku']}" for line in order["lines"])
confirmation = await create_note(
    contactId="c-2",
    body=f"Order {order['id']}: {summary} ({order['note']})",
)
print(confirmation)
