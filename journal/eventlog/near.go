package eventlog

import (
	"cmp"

	"github.com/hostd/hostd/journal/store"
)

const (
	// nearRead is how many timers are read from the store at a time, nearMost
	// how many of a shard are held at most.
	nearRead = 128
	nearMost = 512
)

// nearTimers are the timers of a shard's store from one due time to another:
// exactly those that it has at readAt. Timers fire about in the order in which
// they are due, so that reading the one that a record ends reads those of the
// next records too. Every replica judges the records, so every one needs them.
// They are of the applying goroutine.
type nearTimers struct {
	due      map[string]int64 // nil while there is no range
	from, to timerPlace
}

// timerPlace is where a timer stands among those of its shard.
type timerPlace struct {
	due int64
	key string
}

func (p timerPlace) compare(q timerPlace) int {
	return cmp.Or(cmp.Compare(p.due, q.due), cmp.Compare(p.key, q.key))
}

// behind reports whether a timer stands where nothing was read yet.
func (n *nearTimers) behind(p timerPlace) bool { return n.due == nil || p.compare(n.to) > 0 }

// read has the range begin with a timer.
func (n *nearTimers) read(view View, sh *shard, from timerPlace) error {
	*n = nearTimers{}
	read := nearTimers{due: make(map[string]int64, nearRead), from: from, to: from}
	class := store.AppendPrefix(nil, sh.id, sh.generation, store.ClassDue)
	err := view.Scan(class, append(store.AppendDue(class[:len(class):len(class)], from.due), from.key...), func(key, _ []byte) error {
		due, timer, err := store.CutDue(key[len(class):])
		if err != nil {
			return err
		}
		read.to = timerPlace{due, string(timer)}
		read.due[read.to.key] = due
		if len(read.due) == nearRead {
			return store.ErrStop
		}
		return nil
	})
	if err == nil {
		*n = read
	}
	return err
}

// flushed is told what a batch brought to the store.
func (n *nearTimers) flushed(changes map[string]timerChange) {
	if n.due == nil {
		return
	}
	for key, t := range changes {
		delete(n.due, key)
		if t.gone() {
			continue
		}
		if p := (timerPlace{t.timer.Due, key}); p.compare(n.from) >= 0 && p.compare(n.to) <= 0 {
			n.due[key] = t.timer.Due
		}
	}
	if len(n.due) > nearMost {
		*n = nearTimers{}
	}
}
