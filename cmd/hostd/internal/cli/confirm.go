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

// AddConfirm has a command that takes something away for good ask before it
// does so, and gives it the flag --yes, which answers. It asks on a terminal
// only: a script has nobody who could answer. question is asked with the
// command's arguments; an empty one is not asked.
func AddConfirm(c *cobra.Command, std Stdio, question func(args []string) string) {
	yes := false
	c.Flags().BoolVarP(&yes, "yes", "y", false, "skip the confirmation prompt, which is only shown on a terminal")
	Before(c, func(args []string) error {
		if yes || !OnTerminal(std.In) || !OnTerminal(std.Err) {
			return nil
		}
		text := question(args)
		if text == "" || confirmed(std, text) {
			return nil
		}
		return &failedError{errors.New("nothing was done")}
	})
}

// OnTerminal reports whether somebody sits at a stream.
func OnTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// confirmed asks and reads one line; anything but yes is no.
func confirmed(std Stdio, question string) bool {
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

// answerMost bounds an answer, in bytes.
const answerMost = 64
