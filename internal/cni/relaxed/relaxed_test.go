// SPDX-License-Identifier: Apache-2.0

package relaxed_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/cni/relaxed"
)

func TestJSON(t *testing.T) {
	const comments, trailing, missing = "comments", "a comma before }", "a missing comma"
	for _, tt := range []struct {
		name, in, want string
		corrected      []string
	}{
		{"JSON stays as it is", `{"a": "// no comment, }", "b": [1, {}]}`, `{"a": "// no comment, }", "b": [1, {}]}`, nil},
		{"a comment to the end of the line", "{ // why\n\"a\": 1}", "{       \n\"a\": 1}", []string{comments}},
		{"a comment at the end", "{} // end", "{}       ", []string{comments}},
		{"one with a number sign", "#!\n{}", "  \n{}", []string{comments}},
		{"a short one", "{}#", "{} ", []string{comments}},
		{"a comment of several lines", "{/* a\n\"b\": */\"c\": 1}", "{    \n       \"c\": 1}", []string{comments}},
		{"a trailing comma", `{"a": 1,}`, `{"a": 1 }`, []string{trailing}},
		{"one before a comment", "{\"a\": 1, // x\n}", "{\"a\": 1      \n}", []string{comments, trailing}},
		{"one in a list", `[1, 2, ]`, `[1, 2  ]`, []string{"a comma before ]"}},
		{"a missing comma", "{\"a\": {}\n\"b\": 1}", "{\"a\": {},\n\"b\": 1}", []string{missing}},
		{"one after a number", `{"a": 1 "b": true "c": "x" "d": []}`, `{"a": 1, "b": true, "c": "x", "d": []}`, []string{missing}},
		{"quotes in a string", `{"a\"//": "\\",}`, `{"a\"//": "\\" }`, []string{trailing}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, corrected := relaxed.JSON([]byte(tt.in))
			if string(got) != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
			if !json.Valid(got) {
				t.Errorf("%q is not JSON", got)
			}
			if diff := cmp.Diff(tt.corrected, corrected); diff != "" {
				t.Errorf("corrected (-want +got):\n%s", diff)
			}
		})
	}
}

// What is no JSON even so stays an error.
func TestNotCorrected(t *testing.T) {
	for _, text := range []string{"", " ", `{"a"`, `{"a": "b`, `{"a": 1`, `[1}`, `{} {}`, `{"a" 1}`, "{/* no end", `{,}`, "\xff", `{"a": 'b'}`,
		strings.Repeat("[", 20000)} {
		if got, _ := relaxed.JSON([]byte(text)); json.Valid(got) {
			t.Errorf("%.40q became %q", text, got)
		}
	}
}

// FuzzJSON checks that JSON keeps its meaning, that nothing is corrected twice, and that lines stay
// where they are.
func FuzzJSON(f *testing.F) {
	for _, text := range []string{"{}", `{"a": [1, 2,], }`, "{ // x\n\"a\": {}\n\"b\": /* y */ \"#\"}", `"`, "/", "#", "/*", `{"a":1e5"b":nul}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		text, corrected := relaxed.JSON(data)
		if json.Valid(data) && (string(text) != string(data) || corrected != nil) {
			t.Fatalf("JSON was changed to %q: %q", text, corrected)
		}
		if strings.Count(string(text), "\n") != strings.Count(string(data), "\n") {
			t.Fatalf("lines moved: %q", text)
		}
		if again, more := relaxed.JSON(text); json.Valid(text) && (more != nil || string(again) != string(text)) {
			t.Fatalf("corrected twice: %q", again)
		}
	})
}
