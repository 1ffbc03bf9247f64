package peer

import (
	"errors"
	"math"
	"testing"
	"time"
)

// A link is late if its number is lower than that of the current link or of a
// link that has just ended. A forged high number does not lock out the node's
// own links forever.
func TestLateLinksAreRejected(t *testing.T) {
	const start = 1_700_000_000_000
	q := &peer{owner: &Peers{started: time.Now().Add(-time.Hour)}}
	q.incarnation.Store(start)
	link := func(number uint64, want error) *served {
		t.Helper()
		s := &served{hello: Hello{Incarnation: start}, cancel: func() {}}
		if err := q.replace(s, number); !errors.Is(err, want) {
			t.Errorf("link %d: %v, want %v", number, err, want)
		}
		return s
	}
	link(1, nil)
	high := link(5, nil)
	link(5, errOldLink)
	link(2, errOldLink)
	q.endLink(high)
	link(2, errOldLink)
	q.linkEnded -= int64(lateLinks)
	low := link(2, nil)
	if q.endLink(high); q.inbound != low {
		t.Error("the end of an older link took the newer one's place")
	}
	link(3, nil)

	at := time.UnixMilli(start + 1000)
	for _, tt := range []struct {
		incarnation uint64
		now         time.Time
		want        uint64
	}{
		{start, at, linksAtOnce + 1000},
		{start + 5000, at, linksAtOnce}, // the clock of the other node is ahead
		{1, time.UnixMilli(1), linksAtOnce},
		{math.MaxUint64, at, linksAtOnce},
		{1, time.Unix(-5, 0), linksAtOnce},
	} {
		if got := mostLinks(tt.incarnation, tt.now); got != tt.want {
			t.Errorf("start %d at %v: %d links, want %d", tt.incarnation, tt.now, got, tt.want)
		}
	}
}
