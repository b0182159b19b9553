"""The commonest words of languages: a table, no code.

For each language: words that tell nothing, words by which somebody speaks of himself, and words by
which he speaks to another. By the same words a language in Latin letters is told from others.
"""

LATIN = {
    "german": (
        "der die das den dem des ein eine einen einem einer eines und oder aber doch denn weil "
        "dass wenn als wie wo wohin woher wann warum was wer wem wen wessen welche welcher "
        "welches welchen welchem ist sind war waren wird werden wurde wurden hat haben hatte "
        "hatten sein seine seinen seiner ihr ihre ihren ihrer er sie es man nicht kein keine "
        "keinen auch noch nur schon sehr so in im an am auf aus bei mit nach seit von vom vor zu "
        "zum zur um für über unter durch gegen bis ohne da dann hier dort kann muss soll will "
        "wovon worüber gibt",
        "ich mich mir bin habe hab mein meine meinen meinem meiner meines wir uns unser unsere "
        "unseren unserer",
        "du dich dir bist hast dein deine deinen deinem deiner euch euer eure",
    ),
    "french": (
        "le la les un une des du de d'un d'une au aux et ou où mais donc car que qui quoi dont "
        "quel quelle quels quelles quand comment pourquoi combien ce cet cette ces c'est est "
        "sont était étaient a ont avait ai as il elle ils elles on se sa son ses leur leurs y en "
        "ne pas plus très aussi dans sur sous avec sans pour par chez vers depuis entre si comme "
        "même tout tous toute qu'il qu'elle qu'est-ce est-ce n'est s'est qu'on être avoir fait à",
        "je j j'ai me m m'a moi mon ma mes nous notre nos suis",
        "tu te t toi ton ta tes t'a vous votre vos as-tu avez-vous es",
    ),
    "spanish": (
        "el la los las un una unos unas de del al a y e o u pero que qué quién quiénes cuál "
        "cuáles cuándo cuando dónde donde adónde cómo como por para con sin sobre en entre desde "
        "hasta es son era eran fue fueron está están estaba ha han había hay se su sus le les lo "
        "él ella ellos ellas no ni sí si muy más menos también ya este esta estos estas ese esa "
        "eso esto cuántos cuántas cuánto porque ser estar todo todos toda",
        "yo me mí mi mis mío mía conmigo nos nosotros nuestro nuestra nuestros nuestras he soy "
        "estoy",
        "tú te ti tu tus contigo usted ustedes vosotros vuestro vuestra has eres estás",
    ),
    "italian": (
        "il lo la i gli le un uno una di del dello della dei degli delle da dal dalla a al allo "
        "alla ai agli alle in nel nella nei nelle su sul sulla con per tra fra e ed o ma che chi "
        "cosa cui quale quali quando dove come perché quanto quanti quante è sono era erano ha "
        "hanno aveva si se ne non più molto anche già questo questa questi queste quello quella "
        "suo sua suoi sue lui lei loro essere avere c'è cos'è dov'è dell' stato stata tutto "
        "tutti tutte dai sui",
        "io mi me mio mia miei mie noi ci nostro nostra nostri nostre ho abbiamo",
        "tu ti te tuo tua tuoi tue voi vi vostro vostra hai",
    ),
    "portuguese": (
        "o a os as um uma uns umas de do da dos das em no na nos nas ao à aos às por pelo pela "
        "para com sem sobre entre desde até e ou mas que quem qual quais quando onde aonde como "
        "porque quanto quantos quantas é são era eram foi foram está estão tem têm tinha há se "
        "seu sua seus suas lhe ele ela eles elas não nem sim muito mais também já este esta isso "
        "isto esse essa num numa ser estar ter todo todos toda pra",
        "eu me mim meu minha meus minhas comigo nós nosso nossa nossos nossas estou sou tenho",
        "tu te ti teu tua teus tuas contigo você vocês vosso vossa",
    ),
    "dutch": (
        "de het een en of maar want dat die dit deze wie wat waar wanneer waarom hoe welk welke "
        "is zijn was waren wordt werd heeft had hadden hij zij ze er haar hun niet geen ook nog "
        "al zeer in op aan uit bij met naar sinds van voor tot om over onder door tegen zonder "
        "dan daar hier kan moet zal te als omdat naartoe veel",
        "ik mij mijn me wij we ons onze heb ben",
        "jij je jou jouw jullie u uw",
    ),
    "turkish": (
        "ve veya ya da de ama fakat çünkü ki bu şu o bir iki her hiç çok daha en gibi için ile "
        "kadar sonra önce beri göre nerede nereye nereden neden niçin nasıl hangi ne kim kime "
        "kimin kimi kaç zaman mi mı mu mü değil var yok ise olan olarak oldu onu ona onun onlar "
        "bunu şey hep bile üzere dolayı",
        "ben beni bana benim bende benden biz bizi bize bizim",
        "sen seni sana senin sende siz sizi size sizin",
    ),
    "finnish": (
        "ja tai mutta että jos kun kuin koska missä mihin mistä milloin miksi miten mikä mitä "
        "mitkä minkä kuka ketä kenen kenelle onko on ovat oli olivat ole olla olen ei en et "
        "eivät hän hänen he heidän se sen sitä ne niiden tämä tämän joka jotka myös vielä jo "
        "vain hyvin kanssa ilman ennen jälkeen asti sekä niin",
        "minä minun minua minulla minulle minulta mä mun me meidän meillä meille",
        "sinä sinun sinua sinulla sinulle sä sun te teidän",
    ),
    "swedish": (
        "och eller men att som den det de en ett är var blev blir har hade inte ingen också ännu "
        "bara mycket i på av från till med om för över under genom mot utan vid hos när vart hur "
        "varför vad vem vilken vilket vilka han hon hans hennes sin sitt sina denna detta kan "
        "ska",
        "jag mig mej min mitt mina vi oss vår vårt våra",
        "du dig dej din ditt dina ni er ert era",
    ),
    "danish": (
        "og eller men at som den det de en et er var blev bliver har havde ikke ingen også endnu "
        "kun meget i på af fra til med om for over under gennem mod uden ved hos når hvor "
        "hvordan hvorfor hvad hvem hvilken hvilket hvilke han hun hans hendes sin sit sine denne "
        "dette kan skal",
        "jeg mig min mit mine vi os vores vor",
        "du dig din dit dine i jer jeres",
    ),
    "norwegian": (
        "og eller men at som den det de en et ei er var ble blir har hadde ikke ingen også ennå "
        "bare veldig i på av fra til med om for over under gjennom mot uten ved hos når hvor "
        "hvordan hvorfor hva hvem hvilken hvilket hvilke han hun hans hennes sin sitt sine denne "
        "dette kan skal",
        "jeg meg min mitt mine vi oss vår vårt våre",
        "du deg din ditt dine dere deres",
    ),
    "romanian": (
        "și sau dar că care ce cine cui când unde cum de pe la în din cu fără pentru prin despre "
        "este sunt era erau fost are au avea nu mai foarte un o unei unui ale al ai lui ei lor "
        "el ea își se sa său acest această câți câte dacă până după",
        "eu mă mie îmi mi meu mea mei mele noi ne nostru noastră nostri noastre am",
        "tu te ție îți ți tău ta tăi tale voi vă vostru voastră",
    ),
    "hungarian": (
        "a az és vagy de hogy ha mint mert aki ami ki kit kinek mi mit hol hova honnan mikor "
        "miért hogyan melyik mennyi hány van vannak volt voltak lesz nem is már még csak nagyon "
        "egy ez azt ezt után előtt alatt fölött nélkül között óta meg el le fel be",
        "én engem nekem velem enyém mi minket nekünk",
        "te téged neked veled tiéd ti titeket nektek ön önnek",
    ),
}

OTHERS = {
    "russian": (
        "и в во на с со к ко у о об от до из за по под над при без для через не ни но а или что "
        "чтобы как так где куда откуда когда почему зачем кто кого кому кем чем чём какой какая "
        "какое какие какую каком каких сколько чей это этот эта эти тот та те то он она оно они "
        "его её ее их ему ей им был была было были есть быть же ли бы уже ещё еще только очень "
        "тоже все всё если",
        "я меня мне мной мой моя моё мое мои моего моей моему моим моих мою моём мы нас нам нами "
        "наш наша наше наши нашего нашей наших нашу нашим",
        "ты тебя тебе тобой твой твоя твоё твое твои твоего твоей твоих твою вы вас вам вами ваш "
        "ваша ваше ваши вашего вашей ваших вашу",
    ),
    "hindi": (
        "का की के को से में पर ने तक और या लेकिन कि जो है हैं था थी थे हूँ हूं हो हुआ हुई हुए "
        "रहा रही रहे गया गई गए यह ये वह वे इस उस इन उन इसका उसका उसकी उसके क्या कौन कब कहाँ कहां "
        "क्यों कैसे कितना कितने कितनी किस किसने किसको किसका सा सी नहीं भी ही तो एक लिए साथ बाद "
        "होता होती होते किसी",
        "मैं मैंने मुझे मुझको मुझसे मेरा मेरी मेरे हम हमने हमें हमारा हमारी हमारे",
        "तू तुम तुमने तुम्हें तुम्हारा तुम्हारी तुम्हारे आप आपने आपको आपका आपकी आपके",
    ),
    "arabic": (
        "في من إلى الى على عن مع أو ثم لكن أن ان إن هل ما ماذا متى أين اين كيف لماذا كم أي هو هي "
        "هم هذا هذه ذلك تلك الذي التي كان كانت يكون لا لم لن قد كل بعد قبل عند بين حتى",
        "أنا انا لي عندي نحن لنا عندنا",
        "أنت انت أنتم لك عندك لكم",
    ),
    "greek": (
        "ο η το οι τα του της των τον την και ή αλλά ότι που πού πότε πώς γιατί τι ποιος ποια "
        "ποιο ποιοι ποιον ποιες είναι ήταν έχει είχε δεν μη θα να με σε στο στη στην στον από "
        "για προς χωρίς ένα ένας μια αυτός αυτή αυτό πολύ",
        "εγώ εμένα μου μας εμείς",
        "εσύ εσένα σου σας εσείς",
    ),
    "chinese": (
        "我的 你的 他的 她的 我们 你们 他们 她们 什么 怎么 为什 哪里 在哪 哪个 "
        "哪天 这个 那个 一个 没有 不是 是什",
        "我",
        "你 您",
    ),
    "japanese": (
        "ます まし した たか すか です でし いま てい でい んで って った ある あり りま "
        "する しま では には とは から まで どこ どん どの なぜ いつ この その もの こと",
        "私 僕 俺 わたし",
        "あなた",
    ),
    "korean": (
        "어디 무엇 언제 누가 어떤 입니 니다 습니 니까",
        "나는 내가 나의 내 저는 제가 저의 제 나를 저를 우리",
        "너는 네가 너의 당신 당신은",
    ),
}

# they vote, but are looked for: who was found by them still is
ENGLISH_TOO = (
    "i've i'd i'll it'll we're we've they're he's she's there's isn't aren't wasn't didn't "
    "doesn't haven't can't won't let's got get go going really only never always here's my mine "
    "his us me been being these may might must shall own same each few both until while during "
    "against again once where's who's how's where when why how under since were without yes hey "
    "thanks wow"
)
