from servers.crm_tools import get_contact

result = await get_contact(contactId="c-1")
text = result["content"][0]["text"]
print(text)
