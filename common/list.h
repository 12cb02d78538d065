/* SPDX-License-Identifier: Apache-2.0 */
/* list - an intrusive doubly linked ring; the node lives inside the element.
 *
 *   struct list_node waiting;            a head, made by list_init
 *   LIST_FOR_EACH(n, &waiting) { struct request *r = LIST_ENTRY(n, struct request, link); }
 *
 * An unlinked node points at itself, so unlinking twice is harmless. */
#ifndef COMMON_LIST_H
#define COMMON_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list_node {
    struct list_node *next;
    struct list_node *prev;
};

#define LIST_ENTRY(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

#define LIST_FOR_EACH(node, head)                                                                  \
    for (struct list_node *node = (head)->next; node != (head); node = node->next)

/* As above, and the body may unlink `node`. */
#define LIST_FOR_EACH_SAFE(node, head)                                                             \
    for (struct list_node *node = (head)->next, *node##_next = node->next; node != (head);         \
         node = node##_next, node##_next = node->next)

static inline void
list_init(struct list_node *node)
{
    node->next = node;
    node->prev = node;
}

static inline bool
list_is_empty(const struct list_node *head)
{
    return head->next == head;
}

/* Links `node` just before `at`: at the end of the list when `at` is the head. */
static inline void
list_insert_before(struct list_node *at, struct list_node *node)
{
    node->next = at;
    node->prev = at->prev;
    at->prev->next = node;
    at->prev = node;
}

static inline void
list_push_back(struct list_node *head, struct list_node *node)
{
    list_insert_before(head, node);
}

static inline void
list_push_front(struct list_node *head, struct list_node *node)
{
    list_insert_before(head->next, node);
}

static inline void
list_unlink(struct list_node *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

/* Moves all nodes of one list to the end of another. */
static inline void
list_move_all(struct list_node *from, struct list_node *to)
{
    while (!list_is_empty(from)) {
        struct list_node *node = from->next;

        list_unlink(node);
        list_push_back(to, node);
    }
}

#endif
