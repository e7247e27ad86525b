// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNoDatabase(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "db.sock")
	c := Open(Options{Socket: socket})
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := c.WaitConnected(ctx)
	if !errors.Is(err, ErrNotConnected) || !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "is ovsdb-server running?") || !strings.Contains(err.Error(), socket) {
		t.Errorf("error %v", err)
	}
}

func TestClosed(t *testing.T) {
	c := Open(Options{Socket: filepath.Join(t.TempDir(), "db.sock")})
	c.Close()
	if _, err := c.Ports(t.Context()); !errors.Is(err, ErrNotConnected) {
		t.Errorf("error %v", err)
	}
}

func TestVersion(t *testing.T) {
	tests := []struct {
		text   string
		want   Version
		tooOld bool
	}{
		{"ovs-vswitchd (Open vSwitch) 3.1.0\n", Version{3, 1, 0}, false},
		{"ovs-vswitchd (Open vSwitch) 2.17.12", Version{2, 17, 12}, false},
		{"ovs-vswitchd (Open vSwitch) 2.5.9\nDPDK 2.2.0", Version{2, 5, 9}, true},
		{"ovs-vswitchd (Open vSwitch) 3.10.0-rc1", Version{3, 10, 0}, false},
	}
	for _, tt := range tests {
		got, err := parseVersion(tt.text)
		if err != nil || got != tt.want || got.Less(MinVersion) != tt.tooOld {
			t.Errorf("parseVersion(%q) = %v, %v", tt.text, got, err)
		}
	}
	if _, err := parseVersion("something else"); err == nil {
		t.Error("read a version from nothing")
	}
}
