// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is wrong with the files is said before there is a connection.
func TestTLSFiles(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(empty, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		files TLSFiles
		want  string
	}{
		{TLSFiles{Authority: "/nowhere/ca.pem"}, "authority of OVN's databases: open /nowhere/ca.pem"},
		{TLSFiles{Authority: empty}, "ca.pem has no certificate"},
	} {
		if _, err := tc.files.Config(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %s", tc.files, err, tc.want)
		}
	}
}
