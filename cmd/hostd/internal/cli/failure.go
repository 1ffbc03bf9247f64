package cli

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/hostd/hostd/api/client"
)

// usageCode is the code of a fault of the command line, in addition to the RPC
// codes.
const usageCode = "usage"

// failure is the failure of a command, as JSON.
type failure struct {
	Code    string `json:"code"`             // RPC code or usageCode
	Reason  string `json:"reason,omitempty"` // identifies the failure for programs
	Message string `json:"message"`
	Next    string `json:"next,omitempty"` // suggested next step
	// Doc is the page and section that explains Reason.
	Doc string `json:"doc,omitempty"`
	// Violations are the invalid fields of a request or its payload.
	Violations []client.Violation `json:"violations,omitempty"`
	// Rejection is the code of a rejection by a module.
	Rejection string `json:"rejection,omitempty"`
	// ActualSequence is the entity's sequence, if it differs from the expected
	// one.
	ActualSequence *uint64 `json:"actualSequence,omitempty"`
}

// errorsPage explains the reasons of errors, each under its own heading.
const errorsPage = "docs/reference/errors.md"

// docOf returns the section that explains the reason of an error, or "".
func docOf(err error) string {
	var failed *client.Error
	if !errors.As(err, &failed) || failed.Reason == "" {
		return ""
	}
	return errorsPage + "#" + strings.ToLower(failed.Reason)
}

// codeOf returns the code of a failure: unavailable if no node was reached.
func codeOf(err error) string {
	var network *net.OpError
	if code := client.CodeOf(err); code != connect.CodeUnknown || !errors.As(err, &network) {
		return code.String()
	}
	return connect.CodeUnavailable.String()
}

// jsonFailures reports whether the command prints data for programs, which then
// also get failures as JSON.
func jsonFailures(c *cobra.Command) bool {
	if c.Flags().Changed("jq") {
		return true
	}
	f := c.Flags().Lookup("output")
	return f != nil && slices.Contains([]string{formatJSON, formatLines, formatYAML}, f.Value.String())
}

// report prints to standard error why a command failed and what to do about it:
// for people, or as one line of JSON if the output is for programs.
func report(std Stdio, c *cobra.Command, err error, code, next string) {
	doc := docOf(err)
	if !jsonFailures(c) {
		fmt.Fprintf(std.Err, "hostd: %s\n", errorText(err))
		if next != "" {
			fmt.Fprintln(std.Err, next)
		}
		if doc != "" {
			fmt.Fprintln(std.Err, "Explained in", Clean(doc))
		}
		return
	}
	v := failure{Code: code, Message: err.Error(), Next: next, Doc: doc}
	var failed *client.Error
	var rejected *client.RejectedError
	var mismatch *client.SequenceMismatchError
	switch {
	case errors.As(err, &failed):
		v.Reason, v.Violations = failed.Reason, failed.Violations
	case errors.As(err, &rejected):
		v.Rejection = rejected.Code
	case errors.As(err, &mismatch):
		v.ActualSequence = &mismatch.Actual
	}
	_ = WriteJSON(std.Err, map[string]failure{"error": v}, "") // there is no other place to report to
}
