package cli

import (
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/hostd/hostd/api/client"
)

// HintedError is an error that suggests a next step.
type HintedError struct {
	err  error
	Next string
}

func (e *HintedError) Error() string { return e.err.Error() }
func (e *HintedError) Unwrap() error { return e.err }

// Hint adds the suggested next step to an error.
func Hint(err error, next string) error { return &HintedError{err, next} }

// unknownOutcome is the hint for commands and queries whose time is over.
const unknownOutcome = "The outcome is unknown. Retry a query as it is. Retry a command with the same --command-id, and with --first-tried, to learn its outcome."

// nextStep is like NextStep, but knows the command that failed: only a command
// with the flag --command-id can be repeated to learn its outcome.
func nextStep(c *cobra.Command, err error) string {
	next := NextStep(err)
	if next == unknownOutcome && c.Flags().Lookup("command-id") == nil {
		return "The timeout has expired, but a node may still complete the change: check the result before you repeat it, or set a longer --timeout."
	}
	return next
}

// NextStep returns what an operator can do about an error, or "" if there is no
// suggestion or the error contains it.
func NextStep(err error) string {
	var hinted *HintedError
	if errors.As(err, &hinted) {
		return hinted.Next
	}
	var mismatch *client.SequenceMismatchError
	if errors.As(err, &mismatch) {
		return "Check what happened with 'hostd entity events TYPE ID', then send again with the new --expected-sequence."
	}
	var cut *client.TruncatedError
	if errors.As(err, &cut) {
		return fmt.Sprintf("The first event of this entity that is left is %d. 'hostd entity tail --skip-truncated' skips truncated events, and 'hostd entity events --from %d' starts after them.", cut.First, cut.First)
	}
	var failed *client.Error
	if !errors.As(err, &failed) {
		return ""
	}
	if strings.Contains(failed.Message, "hostd ") {
		return "" // the message already names the next command
	}
	switch failed.Code {
	case connect.CodeUnauthenticated:
		return "Set --token-file or HOSTD_TOKEN_FILE to a file with a token; 'hostd token create' creates tokens."
	case connect.CodeInvalidArgument:
		if strings.Contains(failed.Message, "not JSON text") {
			return `Give the payload as JSON, in quotes that the shell removes: '{"amount":3}'.`
		}
		return ""
	case connect.CodePermissionDenied:
		if failed.Reason == "INTERNAL_COMMAND" {
			return "No role allows it, because the command is internal. 'hostd module describe TYPE' lists the internal commands of a type."
		}
		return "'hostd auth whoami' prints your identity and your roles."
	case connect.CodeUnavailable:
		return "It is safe to retry. 'hostd shard ls' shows which shards have no leader."
	case connect.CodeDeadlineExceeded:
		return unknownOutcome
	case connect.CodeAborted:
		return "The entity no longer knows whether the command took effect: 'hostd entity events TYPE ID' shows what happened."
	case connect.CodeResourceExhausted:
		return "Nothing was written. Retry after a moment; if the error persists, check the disk and the node's log."
	case connect.CodeNotFound:
		if strings.Contains(failed.Message, "no such command") || strings.Contains(failed.Message, "no such query") {
			return "'hostd module describe TYPE' lists the commands and queries of a type."
		}
		return "'hostd module ls' shows what is active; 'hostd module push FILE.wasm' adds a module."
	case connect.CodeInternal:
		if strings.Contains(failed.Message, "is quarantined") {
			return "Nothing was written. 'hostd entity get TYPE ID' shows the error and the end of the quarantine; 'hostd entity clear TYPE ID' ends it now."
		}
		return "Nothing was written. 'hostd logs TYPE' shows what the module logged, and 'hostd entity get TYPE ID' the last error of an entity."
	case connect.CodeUnimplemented:
		return "The node's release does not support this."
	}
	return ""
}
