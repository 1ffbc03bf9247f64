package eventlog

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// ErrLimit: a limit that is not positive.
var ErrLimit = errors.New("limit must be positive")

// List returns up to limit existing entities of one type in a shard, by id:
// those whose id starts with idPrefix and comes after the id after. It reads
// the store and what was applied since as of one moment.
func (r *Reader) List(id sharding.ShardID, entityType, idPrefix, after string, limit int) ([]Info, error) {
	page, err := r.Page(id, PageQuery{Type: entityType, IDPrefix: idPrefix, After: after, Limit: limit, Looks: math.MaxInt})
	return page.Entities, err
}

// PageQuery selects entities of one type in a shard.
type PageQuery struct {
	Type     string
	IDPrefix string
	After    string // only ids greater than this
	Limit    int    // at least 1
	Looks    int    // how many heads are looked at, at most; at least 1
	Deleted  bool   // those that are deleted, in place of those that exist
}

// Page is a part of a listing, by id.
type Page struct {
	Entities []Info
	// Next is the id after which the listing goes on; empty at its end.
	Next string
}

// Page lists entities as of one moment: the store, and what was applied since.
func (r *Reader) Page(id sharding.ShardID, q PageQuery) (Page, error) {
	if q.Limit < 1 || q.Looks < 1 {
		return Page{}, ErrLimit
	}
	after := q.After
	prefix := append([]byte(q.Type), 0)
	prefix = append(prefix, q.IDPrefix...)
	fresh, view, generation, err := r.freshHeads(id, prefix)
	if err != nil {
		return Page{}, fmt.Errorf("list shard %d: %w", id, err)
	}
	defer view.Close()
	l := lister{PageQuery: q, fresh: fresh}
	if after != "" {
		l.after = store.AppendEntityID(nil, sharding.EntityID{Type: q.Type, ID: after})
	}
	class := store.AppendPrefix(nil, id, generation, store.ClassEntity)
	full := append(class[:len(class):len(class)], prefix...)
	start := full
	if from := append(class[:len(class):len(class)], l.after...); bytes.Compare(from, full) > 0 {
		start = from
	}
	err = view.Scan(full, start, func(key, body []byte) error {
		h, err := store.DecodeHead(body)
		if err != nil {
			return err
		}
		return l.stored(key[len(class):], h)
	})
	if err == nil && l.out.Next == "" {
		err = l.rest(nil)
	}
	if err != nil && !errors.Is(err, store.ErrStop) {
		return Page{}, fmt.Errorf("list shard %d: %w", id, err)
	}
	return l.out, nil
}

// freshHead is a head that is newer than the view.
type freshHead struct {
	key string
	store.Head
}

// freshHeads returns the heads that are newer than the view, by key.
func (r *Reader) freshHeads(id sharding.ShardID, prefix []byte) ([]freshHead, kv.View, uint32, error) {
	var out []freshHead
	add := func(h *head) {
		if h.shard.id == id && !h.shard.replaced && strings.HasPrefix(h.key, string(prefix)) {
			out = append(out, freshHead{h.key, h.Head})
		}
	}
	r.mu.RLock()
	var generation uint32
	if sh := r.shards[id]; sh != nil {
		if err := sh.unreadable(); err != nil {
			r.mu.RUnlock()
			return nil, nil, 0, err
		}
		generation = sh.generation
	}
	for _, h := range r.dirty {
		add(h)
	}
	if r.flight != nil {
		for i := range r.flight.heads {
			if h := r.flight.heads[i].head; !h.listed {
				add(h)
			}
		}
	}
	view, err := r.view()
	r.mu.RUnlock()
	slices.SortFunc(out, func(a, b freshHead) int { return strings.Compare(a.key, b.key) })
	return out, view, generation, err
}

// lister merges what the store has with what is fresh; of one entity the fresh
// head counts.
type lister struct {
	PageQuery
	fresh []freshHead
	after []byte
	last  string // the id looked at last
	out   Page
}

func (l *lister) stored(key []byte, h store.Head) error {
	if err := l.rest(key); err != nil {
		return err
	}
	if len(l.fresh) > 0 && l.fresh[0].key == string(key) {
		return nil
	}
	return l.add(string(key), h)
}

// rest adds the fresh heads before key, all of them for nil.
func (l *lister) rest(key []byte) error {
	for len(l.fresh) > 0 && (key == nil || l.fresh[0].key < string(key)) {
		if err := l.add(l.fresh[0].key, l.fresh[0].Head); err != nil {
			return err
		}
		l.fresh = l.fresh[1:]
	}
	return nil
}

func (l *lister) add(key string, h store.Head) error {
	if l.out.Next != "" {
		return store.ErrStop // the page has ended in the store
	}
	if key <= string(l.after) {
		return nil
	}
	if l.Looks == 0 || h.Deleted == l.Deleted && len(l.out.Entities) == l.Limit {
		l.out.Next = l.last
		return store.ErrStop
	}
	e, _, err := store.SplitEntity(key)
	if err != nil {
		return err
	}
	l.Looks--
	if l.last = e.ID; h.Deleted == l.Deleted {
		l.out.Entities = append(l.out.Entities, Info{Entity: e, Head: h, exists: true})
	}
	return nil
}
