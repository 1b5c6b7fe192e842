from servers.crm_tools import create_note, get_contact

contact = await get_contact("c-1")
msg = await create_note("c-1", f"Call {contact['name'].split()[0]} back on Monday", True)
print(msg)
