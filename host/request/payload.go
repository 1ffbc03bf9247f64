package request

import "strings"

// Violation is how a payload does not fit its schema: where, as a path such as
// items[3].sku, empty for the whole, and what. It has names of the payload's
// members in it, and no values.
type Violation struct{ Field, Text string }

// MaxViolations is how many are told of one payload.
const MaxViolations = 16

// InvalidPayloadError: the payload of a command or a query does not fit the
// schema that the manifest has for it. The guest was not called.
type InvalidPayloadError struct{ Violations []Violation }

func (e *InvalidPayloadError) Error() string {
	var out strings.Builder
	out.WriteString("the payload does not fit the schema")
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

// Rejection is the error as the source of a message is told it.
func (e *InvalidPayloadError) Rejection() *RejectedError {
	text := e.Error()
	if len(text) > rejectionText {
		text = strings.ToValidUTF8(text[:rejectionText], "") + "..."
	}
	return &RejectedError{Code: CodeInvalidPayload, Message: text}
}

// rejectionText is how much of a text a message's source is told: a dead letter
// keeps it.
const rejectionText = 1 << 10
