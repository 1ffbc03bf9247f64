package hostd

import "errors"

// Codes of rejections the SDK makes.
const (
	CodeInvalidPayload = "invalid_payload" // the payload cannot be read
	CodeUnknownName    = "unknown_name"    // no such command or query
	CodeError          = "error"           // a handler returned an error that is no *Rejection
)

// Rejection is a handler's refusal: nothing is stored, and the caller gets
// the code and the message.
type Rejection struct {
	Code    string
	Message string
}

func (r *Rejection) Error() string { return r.Code + ": " + r.Message }

// Reject returns the error a handler returns to refuse a command or query.
// Programs act on code, people read message. Refuse before emitting: an
// entity that has already evolved must be loaded again by the host.
func Reject(code, message string) error { return &Rejection{code, message} }

// rejectionOf makes a rejection of any error.
func rejectionOf(err error) *Rejection {
	if r, ok := errors.AsType[*Rejection](err); ok {
		return r
	}
	return &Rejection{CodeError, err.Error()}
}
