package hostd

import "errors"

// Codes with which the SDK itself rejects commands and queries.
const (
	CodeInvalidPayload = "invalid_payload" // the payload cannot be decoded
	CodeUnknownName    = "unknown_name"    // the command or query does not exist
	CodeError          = "error"           // a handler returned an error that isn't a *Rejection
)

// Rejection is the rejection of a command or query by its handler: nothing is
// stored, and the caller gets the code and the message.
type Rejection struct {
	Code    string
	Message string
}

func (r *Rejection) Error() string { return r.Code + ": " + r.Message }

// Reject returns an error that makes a handler reject the command or query. The
// code is for programs, and the message is for people. Reject before emitting
// events, because otherwise the host has to reload the entity, whose state has
// already changed.
func Reject(code, message string) error { return &Rejection{code, message} }

// rejectionOf converts any error to a rejection.
func rejectionOf(err error) *Rejection {
	if r, ok := errors.AsType[*Rejection](err); ok {
		return r
	}
	return &Rejection{CodeError, err.Error()}
}
