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

// ErrLimit is returned for a limit that is not positive.
var ErrLimit = errors.New("limit must be positive")

// List returns up to limit existing entities of one type in a shard, sorted by
// id. Their ids start with idPrefix and are greater than after. List reads a
// consistent snapshot of the store and the memtable.
func (r *Reader) List(id sharding.ShardID, entityType, idPrefix, after string, limit int) ([]Info, error) {
	page, err := r.Page(id, PageQuery{Type: entityType, IDPrefix: idPrefix, After: after, Limit: limit, Looks: math.MaxInt})
	return page.Entities, err
}

// PageQuery selects entities of one type in a shard.
type PageQuery struct {
	Type     string
	IDPrefix string
	After    string // only greater ids
	Limit    int    // at least 1
	Looks    int    // maximum number of rows to examine, at least 1
	Deleted  bool   // list deleted entities instead of existing ones
}

// Page is a part of a listing, sorted by id.
type Page struct {
	Entities []Info
	// Next is the id after which the listing continues; empty at the end.
	Next string
}

// Page lists entities from a consistent snapshot of the store and the memtable.
func (r *Reader) Page(id sharding.ShardID, q PageQuery) (Page, error) {
	if q.Limit < 1 || q.Looks < 1 {
		return Page{}, ErrLimit
	}
	after := q.After
	prefix := append([]byte(q.Type), 0)
	prefix = append(prefix, q.IDPrefix...)
	fresh, view, generation, err := r.freshRows(id, prefix)
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
		return l.addStored(key[len(class):], h)
	})
	if err == nil && l.out.Next == "" {
		err = l.addBefore(nil)
	}
	if err != nil && !errors.Is(err, store.ErrStop) {
		return Page{}, fmt.Errorf("list shard %d: %w", id, err)
	}
	return l.out, nil
}

// freshRow is a row that is newer than the view.
type freshRow struct {
	key string
	store.Head
}

// freshRows returns the rows that are newer than the view, sorted by key.
func (r *Reader) freshRows(id sharding.ShardID, prefix []byte) ([]freshRow, kv.View, uint32, error) {
	var out []freshRow
	add := func(h *entityRow) {
		if h.shard.id == id && !h.shard.replaced && strings.HasPrefix(h.key, string(prefix)) {
			out = append(out, freshRow{h.key, h.Head})
		}
	}
	r.mu.RLock()
	var generation uint32
	if sh := r.shards[id]; sh != nil {
		if err := sh.readError(); err != nil {
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
	slices.SortFunc(out, func(a, b freshRow) int { return strings.Compare(a.key, b.key) })
	return out, view, generation, err
}

// lister merges rows from the store with fresh rows, which take precedence.
type lister struct {
	PageQuery
	fresh []freshRow
	after []byte
	last  string // last id examined
	out   Page
}

func (l *lister) addStored(key []byte, h store.Head) error {
	if err := l.addBefore(key); err != nil {
		return err
	}
	if len(l.fresh) > 0 && l.fresh[0].key == string(key) {
		return nil
	}
	return l.add(string(key), h)
}

// addBefore adds the fresh rows that precede key, or all of them if key is nil.
func (l *lister) addBefore(key []byte) error {
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
		return store.ErrStop // the page ended while reading the store
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
