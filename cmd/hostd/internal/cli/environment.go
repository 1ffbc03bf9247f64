package cli

import (
	"regexp"
	"slices"
	"strings"

	"github.com/hostd/hostd/abi/schema"
)

// Variables are the environment variables of the commands that call nodes.
var Variables = []string{"HOSTD_ADDR", "HOSTD_TOKEN_FILE", "HOSTD_CACERT", "HOSTD_CERT", "HOSTD_KEY"}

const (
	variablePrefix = "HOSTD_"
	testVariables  = "HOSTD_TEST_" // prefix of the variables that tests read
)

// serviceVariable matches the variables that Kubernetes sets in pods for a
// service whose name begins with hostd: HOSTD_SERVICE_HOST,
// HOSTD_PORT_7070_TCP_ADDR and the like, as Kubernetes documents under
// "Discovering services".
var serviceVariable = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_.*)?)$`)

// CheckEnvironment rejects a HOSTD_ variable that no command reads, because it
// is probably misspelt. environ has lines NAME=VALUE; known lists the names
// that are read.
func CheckEnvironment(environ, known []string) error {
	var unknown []string
	for _, line := range environ {
		name, _, _ := strings.Cut(line, "=")
		if strings.HasPrefix(name, variablePrefix) && !strings.HasPrefix(name, testVariables) &&
			!slices.Contains(known, name) && !serviceVariable.MatchString(name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	name := slices.Min(unknown)
	// The common prefix must not make names look similar.
	rest := make([]string, len(known))
	for i, k := range known {
		rest[i] = strings.TrimPrefix(k, variablePrefix)
	}
	if near, ok := schema.Nearest(strings.TrimPrefix(name, variablePrefix), slices.Values(rest)); ok {
		return Usagef("no command reads the environment variable %s: did you mean %s?", name, variablePrefix+near)
	}
	return Usagef("no command reads the environment variable %s: unset it", name)
}
