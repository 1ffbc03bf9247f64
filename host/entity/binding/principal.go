package binding

import (
	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/request"
)

// AppendPrincipal appends who makes a request, where that is known.
func AppendPrincipal(f []byte, r *request.Request) []byte {
	if r.Principal == nil {
		return f
	}
	return abi.AppendFrame(f, abi.InPrincipal, r.Principal.Encoded())
}
