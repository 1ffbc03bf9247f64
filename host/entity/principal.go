package entity

import (
	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// appendAbout appends the frames that describe a request's context to a guest:
// the principal, if it is known, and the type's settings.
func (t *Type) appendAbout(f []byte, r *request.Request) []byte {
	if t.Settings != nil {
		if values := t.Settings.Values(); values != "" {
			f = abi.AppendSettings(f, values)
		}
	}
	if r.Principal == nil {
		return f
	}
	return abi.AppendFrame(f, abi.InPrincipal, r.Principal.Bytes())
}

// principalToRecord returns the principal to store in the record of a request. It is nil
// if the type does not record principals, or if the cluster version does not
// support it.
func (t *Type) principalToRecord(r *request.Request, version sharding.ClusterVersion) []byte {
	if !t.RecordPrincipal || r.Principal == nil || version < sharding.VersionRecordPrincipal {
		return nil
	}
	return r.Principal.Bytes()
}
