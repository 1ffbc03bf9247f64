package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// AddConfirm makes a command that removes something for good ask for
// confirmation first, and adds the flag --yes, which confirms in advance. It
// asks only on a terminal, because nobody can answer in a script. question
// returns the question for the command's arguments; if it is empty, the command
// does not ask.
func AddConfirm(c *cobra.Command, std Stdio, question func(args []string) string) {
	yes := false
	c.Flags().BoolVarP(&yes, "yes", "y", false, "skip the confirmation prompt, which is only shown on a terminal")
	Before(c, func(args []string) error {
		if yes || !OnTerminal(std.In) || !OnTerminal(std.Err) {
			return nil
		}
		text := question(args)
		if text == "" || askConfirmation(std, text) {
			return nil
		}
		return &failedError{errors.New("nothing was done")}
	})
}

// OnTerminal reports whether a stream is a terminal.
func OnTerminal(stream any) bool {
	if h, ok := stream.(headless); ok {
		stream = h.Writer
	}
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// askConfirmation asks and reads one line; any answer except yes means no.
func askConfirmation(std Stdio, question string) bool {
	fmt.Fprintf(std.Err, "%s [y/N] ", question)
	line, err := bufio.NewReader(io.LimitReader(std.In, answerMost)).ReadString('\n')
	if err != nil {
		fmt.Fprintln(std.Err)
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true
	}
	return false
}

// answerMost limits an answer, in bytes.
const answerMost = 64
