"""Short texts on very different subjects: their vectors show the directions in which an encoder tells texts apart.

Codes depend on this list: another list gives other segments. It is not specific to any corpus, and its order does not
matter.
"""

from __future__ import annotations

TOPICS = tuple(
    """
American film directed by
British television series
rock band formed in
studio album released by
hit single song chart
jazz musician and composer
opera singer soprano
classical symphony orchestra
rapper hip hop record label
country music singer
association football club league
professional footballer midfielder
basketball player NBA team
baseball pitcher major league
American football quarterback college
ice hockey goaltender
tennis grand slam tournament
Olympic swimmer gold medal
cricket batsman test match
boxing heavyweight champion
Formula One racing driver
golf course tournament
chess grandmaster
video game developed for console
board game and role-playing game
comic book superhero Marvel
animated cartoon series Disney
novel by author published
poet and poetry collection
playwright theatre Broadway musical
children's book illustrator
science fiction writer
newspaper journalist editor
magazine published monthly
radio station broadcasting
television network channel
actress known for her role
film producer screenwriter
documentary about
horror movie
romantic comedy film
Bollywood Hindi film
Japanese anime manga
Korean pop idol group
French painter impressionist
sculptor and museum of modern art
architect of the building
skyscraper tower in downtown
bridge over the river
railway station line
airport and airline
highway interstate road
ship navy destroyer
aircraft fighter squadron
battle of the civil war
World War II army division
general and military commander
king and queen of the dynasty
Roman emperor
medieval castle
pope and cardinal Catholic church
bishop of the diocese
Buddhist temple
mosque and Islamic scholar
Jewish rabbi synagogue
Hindu deity festival
Greek mythology god
president of the United States
prime minister parliament election
senator Republican Democrat politician
mayor of the city council
supreme court judge lawsuit
lawyer and civil rights activist
police murder criminal trial
serial killer prison
terrorist attack bombing
spy intelligence agency
economist and bank
stock exchange company merger
founder and chief executive entrepreneur
car manufacturer automobile model
software company computer
internet website social network
mobile phone operating system
artificial intelligence algorithm
mathematician theorem proof
physicist quantum theory Nobel Prize
chemist chemical compound reaction
biologist evolution gene
species of bird in the family
flowering plant genus
fish and marine animal
insect beetle moth
dinosaur fossil
dog breed horse racing
disease virus infection
hospital physician surgery
drug medication treatment
psychology mental disorder
nutrition food recipe restaurant
beer wine drink brewery
fashion model designer clothing
beauty pageant Miss Universe
university college campus
high school students education
professor philosopher
linguist and language family
historian archaeology ancient site
explorer expedition Antarctica
mountain peak climbing
lake and national park
island in the Pacific Ocean
volcano earthquake hurricane
desert climate weather
village in the district of Iran
town in Germany municipality
county in Texas
suburb of Sydney Australia
province of China
state in India
city in Africa Nigeria
Latin America Mexico Brazil
Russia Soviet Union Moscow
Scandinavian Sweden Norway
Italy Rome Renaissance
Spain Madrid
Canada Ontario Quebec
New Zealand Maori
Ireland Dublin
Scotland Edinburgh clan
Israel Palestine conflict
Turkey Ottoman Empire
Native American tribe
slavery African American history
women's rights feminist
gay lesbian transgender
astronomy planet star galaxy
spacecraft NASA mission
nuclear power energy oil
coal mining steel
agriculture farm crop
environment pollution conservation
engineering patent inventor
telephone telegraph electrical
printing photography camera
clock calendar time
money currency coin
tax insurance law
trade union strike labor
refugee immigration border
family marriage children biography
born in died in
son of the Duke Earl nobility
award ceremony Academy Award nomination
episode of the season
list of characters
soundtrack score
dance ballet choreographer
comedian stand-up
magician circus
wrestler WWE
mixed martial arts
cyclist Tour de France
rugby union
volleyball gymnastics
skiing snowboarding winter
sailing yacht rowing
fishing hunting
toy doll
shopping mall retail store
hotel casino Las Vegas
amusement park roller coaster
theater cinema building historic place
cemetery monument memorial
library archive manuscript
treaty constitution independence
revolution communist party
fascist Nazi Holocaust
colonial empire governor
pirate ship wreck
gold rush frontier outlaw
fairy tale folklore legend
ghost vampire supernatural
detective mystery crime fiction
astrology religion cult
server configuration error log
meeting minutes and decisions
invoice payment contract
source code function bug fix
installation manual for users
employee policy human resources
customer support request
quarterly financial report revenue
authentication token API request
database query index
safety regulation compliance audit
clinical trial patients results
machine learning training data
network router firewall
project schedule milestone
product price catalogue
press release announcement
research paper abstract method
building permit construction site
machine maintenance spare part
shipping logistics warehouse
weather forecast temperature
""".strip().splitlines()
)
