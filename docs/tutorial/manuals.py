#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ask the manual pages of this machine: the retriever and client of docs/tutorial.md.  Python alone is enough.

  manuals.py index DB PAGE...       cuts manual pages into documents, into a full-text index
  manuals.py manifest DB            the documents as lines for `kvasirctl docs warm`
  manuals.py ask DB QUESTION        finds documents, has them read, prints the answer and what it cost

The documents are the unit of reuse: the same text is read once, whatever stands beside it.  So they are made here,
once, and never touched again: no date, no score, no "as of" inside."""
import argparse
import concurrent.futures
import json
import os
import re
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request

DOCUMENT_CHARS = 1500  # a few paragraphs: what a question is usually about
LEAST_CHARS = 100  # headers, footers and names of pages answer nothing
COMMON_WORDS = set("a an and are as at be by can do does for from how i if in is it my of on or that the there to what "
                   "when where which who why will with".split())


# --- documents -------------------------------------------------------------------------------------


def read_page(path):
    """The page as plain text, without hyphens and without padding."""
    done = subprocess.run(["man", "--nh", "--nj", "-E", "UTF-8", "-l", path], capture_output=True, text=True, check=False,
                          env={**os.environ, "MANWIDTH": "120", "MANPAGER": "cat"})
    return re.sub(r".\x08", "", done.stdout)


def cut(name, text):
    """A page as (title, text): its sections, in pieces of whole paragraphs."""
    heading, pieces = "", []
    for block in re.split(r"\n\s*\n", text):
        found = re.match(r"([A-Z][A-Z0-9 ,/()-]+)$", block.split("\n")[0])
        if found and not block.startswith(" "):
            heading = found.group(1).strip()
        block = "\n".join(line.strip() for line in block.split("\n"))
        title = f"{name}, {heading}" if heading else name
        if pieces and pieces[-1][0] == title and len(pieces[-1][1]) + len(block) < DOCUMENT_CHARS:
            pieces[-1] = (title, pieces[-1][1] + "\n\n" + block)
        else:
            pieces.append((title, block[:DOCUMENT_CHARS]))
    return [piece for piece in pieces if len(piece[1]) >= LEAST_CHARS]


def index(db, pages):
    paths = sorted(os.path.join(page, name) for page in pages if os.path.isdir(page) for name in os.listdir(page))
    paths += [page for page in pages if not os.path.isdir(page)]
    db.executescript("drop table if exists documents;"
                     "create virtual table documents using fts5(id unindexed, title, text, tokenize = 'porter')")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for path, text in zip(paths, pool.map(read_page, paths)):
            name = re.sub(r"\.(\w+)(\.gz)?$", r"(\1)", os.path.basename(path))
            for number, (title, piece) in enumerate(cut(name, text)):
                db.execute("insert into documents values (?, ?, ?)", (f"{name}#{number}", title, piece))
    db.commit()
    print(f"{len(paths)} pages, {db.execute('select count(*) from documents').fetchone()[0]} documents")


def manifest(db):
    for id_, title, text in db.execute("select id, title, text from documents order by id"):
        print(json.dumps({"id": id_, "title": title, "text": text}))


# --- retrieval: BM25 over words, titles counting more ------------------------------------------------


def retrieve(db, question, top):
    words = [word for word in re.findall(r"\w+", question.lower()) if word not in COMMON_WORDS]
    query = " OR ".join(f'"{word}"' for word in words)
    return db.execute("select id, title, text from documents where documents match ? "
                      "order by bm25(documents, 0, 4, 1) limit ?", (query, top)).fetchall() if query else []


# --- the question ------------------------------------------------------------------------------------


def ask(url, question, documents, max_tokens):
    """Streams the answer; returns usage."""
    body = {"messages": [{"role": "user", "content": question}], "max_tokens": max_tokens, "temperature": 0,
            "documents": [{"id": id_, "title": title, "text": text} for id_, title, text in documents],
            "stream": True, "stream_options": {"include_usage": True}}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    usage = {}
    with urllib.request.urlopen(request) as answer:
        for line in answer:
            if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                continue
            event = json.loads(line[len("data: "):])
            if "error" in event:
                sys.exit("manuals.py: " + event["error"]["message"])
            for choice in event["choices"]:
                print(choice["delta"].get("content") or "", end="", flush=True)
            usage = event.get("usage") or usage
    print()
    return usage


def run_ask(db, args):
    documents = retrieve(db, args.question, args.top)
    if not documents:
        sys.exit("manuals.py: no page has these words")
    try:
        usage = ask(args.url, args.question, documents, args.max_tokens)
    except urllib.error.HTTPError as error:
        sys.exit(f"manuals.py: {json.load(error)['error']['message']}")
    print("\nread for it:")
    for (id_, title, _), used in zip(documents, usage["documents"]):
        print(f"  {used['reason']:8} {used['tokens']:5} tokens  {id_:28} {title}")
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    print(f"{usage['prompt_tokens']} tokens of prompt, {cached} of them had been read before; more by "
          f"`kvasirctl explain {usage['request']}`")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("index", "manifest", "ask"):
        command = commands.add_parser(name)
        command.add_argument("db")
        if name == "index":
            command.add_argument("pages", nargs="+")
        if name == "ask":
            command.add_argument("question")
            command.add_argument("--url", default="http://127.0.0.1:8000")
            command.add_argument("--top", type=int, default=5)
            command.add_argument("--max-tokens", type=int, default=128)
    args = parser.parse_args()
    db = sqlite3.connect(args.db)
    if args.command == "index":
        index(db, args.pages)
    elif args.command == "manifest":
        manifest(db)
    else:
        run_ask(db, args)


if __name__ == "__main__":
    main()
