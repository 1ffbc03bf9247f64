package binding

import (
	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// AppendPrincipal appends who makes a request, where that is known.
func AppendPrincipal(f []byte, r *request.Request) []byte {
	if r.Principal == nil {
		return f
	}
	return abi.AppendFrame(f, abi.InPrincipal, r.Principal.Encoded())
}

// Recorded is what the record of a request keeps of who made it; nothing where
// the type does not ask for that, or the cluster's level has it not.
func (t *Type) Recorded(r *request.Request, level sharding.Level) []byte {
	if !t.RecordPrincipal || r.Principal == nil || level < sharding.LevelRecordPrincipal {
		return nil
	}
	return r.Principal.Encoded()
}
