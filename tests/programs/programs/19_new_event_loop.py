import asyncio
from servers.crm_tools import get_contact

def main():
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        contact = loop.run_until_complete(get_contact(contactId="c-3"))
        print(contact["email"])
    finally:
        loop.close()

if __name__ == '__main__':
    main()
