package hostd

import "errors"

// Codes of rejections that the SDK makes.
const (
	CodeInvalidPayload = "invalid_payload" // the payload cannot be decoded
	CodeUnknownName    = "unknown_name"    // no such command or query
	CodeError          = "error"           // a handler returned an error that isn't a *Rejection
)

// Rejection is the rejection of a command or query by its handler: nothing is
// stored, and the caller gets the code and the message.
type Rejection struct {
	Code    string
	Message string
}

func (r *Rejection) Error() string { return r.Code + ": " + r.Message }

// Reject returns an error that makes a handler reject the command or query.
// Code is for programs, message for people. Reject before emitting events,
// because the host has to reload an entity whose state has changed already.
func Reject(code, message string) error { return &Rejection{code, message} }

// rejectionOf converts any error to a rejection.
func rejectionOf(err error) *Rejection {
	if r, ok := errors.AsType[*Rejection](err); ok {
		return r
	}
	return &Rejection{CodeError, err.Error()}
}
