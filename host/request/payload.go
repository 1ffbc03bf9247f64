package request

import "strings"

// Violation is one mismatch between a payload and its schema. Field is a path
// such as items[3].sku, or empty for the whole payload; Text describes the
// mismatch. Both may contain names of the payload's members, but no values.
type Violation struct{ Field, Text string }

// MaxViolations limits how many violations are reported for one payload.
const MaxViolations = 16

// InvalidPayloadError: the payload of a command or query does not match the
// schema in the manifest. The guest was not called.
type InvalidPayloadError struct{ Violations []Violation }

func (e *InvalidPayloadError) Error() string {
	var out strings.Builder
	out.WriteString("the payload does not match the schema")
	for i, v := range e.Violations {
		between := "; "
		if i == 0 {
			between = ": "
		}
		out.WriteString(between)
		if v.Field != "" {
			out.WriteString(v.Field + ": ")
		}
		out.WriteString(v.Text)
	}
	return out.String()
}

// Rejection converts the error to the rejection that the sender of a message
// gets.
func (e *InvalidPayloadError) Rejection() *RejectedError {
	text := e.Error()
	if len(text) > rejectionText {
		text = strings.ToValidUTF8(text[:rejectionText], "") + "..."
	}
	return &RejectedError{Code: CodeInvalidPayload, Message: text}
}

// rejectionText limits the message of the rejection of an invalid payload,
// in bytes, because a dead letter stores it.
const rejectionText = 1 << 10
