from servers.shop import get_order
from servers.crm_tools import get_contact
from toolfold import ToolError

try:
    order = await get_order(order_id="O-4711")
    print(order["status"])
except ToolError as e:
    print("shop:", "not found" in str(e))

try:
    await get_contact(contactId="c-99")
except ToolError as e:
    print("crm:", "contact c-99 not found" in str(e))
