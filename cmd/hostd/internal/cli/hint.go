package cli

import (
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
)

// HintedError carries its own next step.
type HintedError struct {
	err  error
	Next string
}

func (e *HintedError) Error() string { return e.err.Error() }
func (e *HintedError) Unwrap() error { return e.err }

// Hint adds the next step to an error.
func Hint(err error, next string) error { return &HintedError{err, next} }

// NextStep says what an operator can do about a failure; "" when the failure
// says it itself.
func NextStep(err error) string {
	var hinted *HintedError
	if errors.As(err, &hinted) {
		return hinted.Next
	}
	var mismatch *client.SequenceMismatchError
	if errors.As(err, &mismatch) {
		return "Look at what happened with 'hostd entity events TYPE ID', then send again with the new --expected-sequence."
	}
	var cut *client.CutError
	if errors.As(err, &cut) {
		return fmt.Sprintf("Of this entity event %d is the first; 'hostd entity tail --skip-cut' goes on past what was cut, 'hostd entity events --from %d' begins there.", cut.First, cut.First)
	}
	var failed *client.Error
	if !errors.As(err, &failed) {
		return ""
	}
	if strings.Contains(failed.Message, "hostd ") {
		return "" // the node has said it
	}
	switch failed.Code {
	case connect.CodeUnauthenticated:
		return "Name a file with a token by --token-file or HOSTD_TOKEN_FILE; 'hostd token create' makes tokens."
	case connect.CodeInvalidArgument:
		if strings.Contains(failed.Message, "not JSON text") {
			return `Give the payload as JSON, in quotes that the shell takes away: '{"amount":3}'.`
		}
		return ""
	case connect.CodePermissionDenied:
		if failed.Reason == "INTERNAL_COMMAND" {
			return "No role allows it. 'hostd module describe TYPE' says which commands of a type are internal."
		}
		return "'hostd auth can-i' says who you are for the cluster, and which roles you have."
	case connect.CodeUnavailable:
		return "It is safe to try again. 'hostd shard ls' shows which shards have no leader."
	case connect.CodeDeadlineExceeded:
		return "The outcome is unknown. Ask a query again; send a command again with the same --command-id, and with --first-tried, to learn its outcome."
	case connect.CodeAborted:
		return "Whether the command took effect is forgotten: 'hostd entity events TYPE ID' shows what happened."
	case connect.CodeResourceExhausted:
		return "Nothing was written. Try again after a moment; if it lasts, look at the disk and at the node's log."
	case connect.CodeNotFound:
		if strings.Contains(failed.Message, "no such command") || strings.Contains(failed.Message, "no such query") {
			return "'hostd module describe TYPE' lists the commands and queries of a type."
		}
		return "'hostd module ls' shows what is active; 'hostd module push FILE.wasm' adds a module."
	case connect.CodeInternal:
		if strings.Contains(failed.Message, "is parked") {
			return "Nothing was written. 'hostd entity get TYPE ID' says what fails and until when it is held back; 'hostd entity clear TYPE ID' lets it run at once."
		}
		return "Nothing was written. 'hostd logs TYPE' says what the module did, and 'hostd entity get TYPE ID' what failed last of an entity."
	case connect.CodeUnimplemented:
		return "This release does not do that yet; the CHANGELOG says what it does."
	}
	return ""
}
