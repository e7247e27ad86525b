// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"regexp"
	"strings"
	"testing"
)

// Machines say their host names: the API takes none that could be read as something else.
func TestHostNamesOfLeases(t *testing.T) {
	status := load(t, "ports").schema.Properties["status"]
	name := status.Properties["lease"].Properties["hostName"].ValueValidation
	if name == nil || name.MaxLength == nil || *name.MaxLength != 253 {
		t.Fatalf("the host name has no bound: %+v", name)
	}
	pattern := regexp.MustCompile(name.Pattern)
	for text, want := range map[string]bool{
		"db": true, "DESKTOP-7F": true, "db.red.example": true, "42": true, "a-b.c--d": true, strings.Repeat("a.", 126) + "b": true,
		"": false, "db.": false, ".db": false, "db..example": false, "-db": false, "db-": false, "my_db": false, "my db": false,
		"db\n": false, "\ndb": false, "db\x1b[2J": false, "<b>": false, "datenbänke": false,
	} {
		if pattern.MatchString(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}
