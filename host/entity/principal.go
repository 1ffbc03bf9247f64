package entity

import (
	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// AppendAbout appends what a guest may know of a request beside its payload:
// who makes it, where that is known, and what operators have set for the type.
func (t *Type) AppendAbout(f []byte, r *request.Request) []byte {
	if t.Settings != nil {
		if values := t.Settings(); values != "" {
			f = abi.AppendSettings(f, values)
		}
	}
	if r.Principal == nil {
		return f
	}
	return abi.AppendFrame(f, abi.InPrincipal, r.Principal.Encoded())
}

// Recorded is what the record of a request keeps of who made it; nothing where
// the type does not ask for that, or the cluster's level has it not.
func (t *Type) Recorded(r *request.Request, level sharding.ClusterVersion) []byte {
	if !t.RecordPrincipal || r.Principal == nil || level < sharding.VersionRecordPrincipal {
		return nil
	}
	return r.Principal.Encoded()
}
