// Package frames is what a guest is told with a command or a query.
//
// It decides nothing and starts no goroutine.
package frames

import (
	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/entity/binding"
	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
)

// Command appends a command of an entity of the type that is at a sequence.
func Command(f []byte, t *binding.Type, at journal.Sequence, r *request.Request, env binding.Env) []byte {
	f = abi.AppendSequence(f, uint64(at))
	f = abi.AppendName(f, r.Name)
	f = abi.AppendPayload(f, r.Payload)
	f = abi.AppendCommandID(f, string(r.ID))
	f = abi.AppendNow(f, env.Now)
	f = abi.AppendSeed(f, env.Seed)
	if made := timers.Of(r); made != nil {
		f = abi.AppendDue(f, made.Timer.Due)
	}
	return abi.AppendSource(t.AppendAbout(f, r), sourceOf(r))
}

// Query appends a query, the same.
func Query(f []byte, t *binding.Type, at journal.Sequence, r *request.Request, env binding.Env) []byte {
	f = abi.AppendSequence(f, uint64(at))
	f = abi.AppendName(f, r.Name)
	f = abi.AppendPayload(f, r.Payload)
	return abi.AppendNow(t.AppendAbout(f, r), env.Now)
}

// sourceOf says who sent a request.
func sourceOf(r *request.Request) abi.Source {
	if timers.Of(r) != nil {
		return abi.Source{Kind: abi.SourceTimer}
	}
	if Internal(r) {
		from := r.Delivery.Source
		return abi.Source{Kind: abi.SourceEntity, EntityType: []byte(from.Type), EntityID: []byte(from.ID)}
	}
	return abi.Source{Kind: abi.SourceClient}
}

// Internal reports that the command comes from within: its id is not
// remembered, for something else keeps it from having its effect again.
func Internal(r *request.Request) bool {
	return timers.Of(r) != nil || r.Kind == request.Deliver || r.Kind == request.Redeliver
}
