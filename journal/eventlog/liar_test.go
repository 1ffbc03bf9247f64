package eventlog_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// liar is a store that hides rows or returns earlier versions of them, as if
// its blocks were damaged.
type liar struct {
	*store.Store
	lies map[string][]byte // by key; nil means that there is no such row
}

// Watermark reports that everything is in tables, as if the store had been
// closed.
func (l *liar) Watermark() uint64 { return l.MaxVersion() }

func (l *liar) ViewAt(version uint64) (kv.View, error) {
	v, err := l.Store.ViewAt(version)
	if err != nil {
		return nil, err
	}
	return lyingView{v, l.lies}, nil
}

type lyingView struct {
	*store.View
	lies map[string][]byte
}

func (v lyingView) Get(key []byte, fn func(body []byte) error) (found bool, err error) {
	if body, lie := v.lies[string(key)]; lie {
		if body == nil {
			return false, nil
		}
		return true, fn(body)
	}
	return v.View.Get(key, fn)
}

func (v lyingView) Scan(prefix, from []byte, fn func(key, body []byte) error) error {
	return v.View.Scan(prefix, from, func(key, body []byte) error {
		lie, lies := v.lies[string(key)]
		switch {
		case !lies:
			return fn(key, body)
		case lie == nil:
			return nil
		}
		return fn(key, lie)
	})
}

func (v lyingView) Cursor(prefix []byte) kv.Cursor {
	return &lyingCursor{v.View.Cursor(prefix), v.lies}
}

type lyingCursor struct {
	*store.Cursor
	lies map[string][]byte
}

func (c *lyingCursor) Next() (key, body []byte, err error) {
	for {
		key, body, err = c.Cursor.Next()
		lie, lies := c.lies[string(key)]
		switch {
		case err != nil || key == nil || !lies:
			return key, body, err
		case lie != nil:
			return key, lie, nil
		}
	}
}

// row is a pair of the store.
type row struct{ key, body []byte }

// rowsOf returns the rows of a class in a shard as of a version.
func rowsOf(st *store.Store, version uint64, id sharding.ShardID, class store.Class) (rows []row, err error) {
	view, err := st.ViewAt(version)
	if err != nil {
		return nil, err
	}
	defer view.Close()
	err = view.Scan(store.AppendPrefix(nil, id, 0, class), nil, func(key, body []byte) error {
		rows = append(rows, row{bytes.Clone(key), bytes.Clone(body)})
		return nil
	})
	return rows, err
}

// answers returns everything that a Machine returns about a shard of the model,
// one per line; errors are included as text.
func answers(m *eventlog.Machine, id sharding.ShardID, sh *modelShard) (out []string, errs []error) {
	say := func(what string, err error, said ...any) {
		if err != nil {
			said = []any{"error"}
		}
		text, _ := json.Marshal(said)
		out = append(out, what+" "+string(text))
		errs = append(errs, err)
	}
	names := make([]sharding.EntityID, 0, len(sh.entities))
	for e := range sh.entities {
		names = append(names, e)
	}
	slices.SortFunc(names, func(a, b sharding.EntityID) int { return strings.Compare(a.String(), b.String()) })
	for _, e := range names {
		info, err := m.Info(id, e)
		say("head of "+e.String(), err, info.Sequence, info.Hash, info.Records)
		var n, sum int
		err = m.Read(contextOf, id, e, sh.entities[e].gone(), func(at journal.Position, _ *journal.Record) error {
			n, sum = n+1, sum+int(at.Index)
			return nil
		})
		say("records of "+e.String(), err, n, sum)
		timers, err := m.TimersOf(contextOf, id, e, 1000)
		say("timers of "+e.String(), err, timers)
		pending, _, err := m.PendingMessages(id, e)
		say("sends of "+e.String(), err, pending)
		for _, other := range names {
			pair, err := m.ChannelCounters(id, e, other)
			say("pair of "+e.String()+" and "+other.String(), err, pair)
			received, err := m.Received(id, e, other)
			say("received by "+e.String()+" of "+other.String(), err, received)
		}
	}
	due, next, err := m.DueTimers(contextOf, id, 1<<62, 1<<20, nil)
	say("due timers", err, due, next)
	var messages []journal.ItemID
	err = m.Outbox(contextOf, id, journal.ItemID{}, func(s *journal.Message) error {
		messages = append(messages, s.ID)
		return nil
	})
	say("outbox", err, messages)
	var deadLetters []journal.ItemID
	err = m.DeadLetters(contextOf, id, journal.ItemID{}, func(l *journal.DeadLetter) error {
		deadLetters = append(deadLetters, l.ID)
		return nil
	})
	say("letters", err, deadLetters)
	return out, errs
}
