package client

import (
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"
)

// TestReturnedCommandFailsOnlyIfOvertakenByItsEntity checks that a returned command fails if a
// later command to the same entity has its outcome, in whichever order the
// answers arrive. Commands to other entities do not make it fail.
func TestReturnedCommandFailsOnlyIfOvertakenByItsEntity(t *testing.T) {
	const entities = 40
	now, opts := time.Now(), Options{MinBackoff: time.Millisecond, MaxBackoff: time.Second}
	refused := &Error{Code: connect.CodeUnavailable}
	for _, first := range []bool{true, false} { // the rejection arrives first
		w := &nodeStream{s: &Stream{}, wake: make(chan struct{}, 1)}
		l := &shardRoute{stream: w}
		var all []*pending
		for i := range entities + 1 {
			p := &pending{number: uint64(i + 1), route: l, cmd: Command{EntityType: "t", EntityID: fmt.Sprint("e", i%entities)}}
			all = append(all, p)
			w.push(p)
			l.out++
		}
		refuse := func() {
			for _, p := range all[:2] { // a command of e0, which has a later command, and one of e1
				w.remove(p)
				l.cameBack(p, refused, now, &opts)
			}
		}
		if first {
			refuse()
		}
		for _, p := range all[2:] {
			l.overtakes(p)
			w.remove(p)
			l.recordOutcome(p, true)
		}
		if !first {
			refuse()
		}
		if over := l.over(all[0], now, time.Minute); !over {
			t.Errorf("refused first %v: a command behind which another of its entity has run is sent again", first)
		}
		if over := l.over(all[1], now, time.Minute); over {
			t.Errorf("refused first %v: a command is given up for those of other entities", first)
		}
		if !l.waiting() || l.held.first != all[0] || l.held.last != all[1] {
			t.Errorf("refused first %v: what came back does not wait in the order of Send", first)
		}
	}
}
