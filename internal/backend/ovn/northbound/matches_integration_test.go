// SPDX-License-Identifier: Apache-2.0

//go:build integration

package northbound

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"coelan.io/coelan/internal/ovntest"
)

// OVN understands all matches that there are in the golden files of compiled rows. One that it does
// not understand it drops, and says so in the logs of nodes alone.
func TestMatchesAreUnderstood(t *testing.T) {
	files, err := filepath.Glob("../compile/testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	match := regexp.MustCompile(`(?m)^ *match: (.*)$`)
	var all []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range match.FindAllStringSubmatch(string(text), -1) {
			all = append(all, found[1])
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if bad := misunderstood(t, all); bad != "" {
		t.Errorf("OVN does not understand all of %d matches:\n%s", len(all), bad)
	}
	if bad := misunderstood(t, []string{`inport != "a" && ip4`}); !strings.Contains(bad, "equality") {
		t.Errorf("what OVN does not understand is %q", bad)
	}
}

// misunderstood is what OVN says of matches that it does not understand.
func misunderstood(t *testing.T, matches []string) string {
	t.Helper()
	o := ovntest.Start(t)
	o.Northd()
	args := []string{"ls-add", "s", "--", "lsp-add", "s", "p"}
	named := regexp.MustCompile(`[$@]([A-Za-z0-9_.]+)|is_chassis_resident\("([^"]+)"\)`)
	seen := map[string]bool{}
	for i, m := range matches {
		for _, found := range named.FindAllStringSubmatch(m, -1) {
			switch {
			case seen[found[0]]:
			case found[2] != "":
				args = append(args, "--", "lsp-add", "s", found[2])
			case strings.HasPrefix(found[0], "@"):
				args = append(args, "--", "pg-add", found[1])
			default:
				args = append(args, "--", "create", "address_set", "name="+found[1])
			}
			seen[found[0]] = true
		}
		args = append(args, "--", "acl-add", "s", "to-lport", fmt.Sprint(i+1), m, "allow")
	}
	o.Nbctl(args...)
	o.Nbctl("--wait=sb", "sync")
	return o.Warnings("s", `inport == "p" && eth.src == 02:00:00:00:00:01 && ip4`)
}
