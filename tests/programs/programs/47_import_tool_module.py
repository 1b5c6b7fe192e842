from servers.shop.list_orders import list_orders
from servers.shop.get_invoice_number import get_invoice_number
from servers.crm_tools.create_note import create_note

shipped = await list_orders(status="shipped")
numbers = [await get_invoice_number(o["id"]) for o in shipped]
print(await create_note(contactId="c-1", body="Invoices " + ", ".join(numbers)))
print(numbers)
