// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// measured is the table that docs/operate/restarts.md shows.
var measured table

type table []row

// row is what one restart cost.
type row struct {
	what     string
	outcomes map[string]outcome
	took     time.Duration // until everything was back
}

// add keeps a row and prints it in one line.
func (tb *table) add(t *testing.T, what string, took time.Duration, outcomes map[string]outcome) {
	r := row{what, outcomes, took}
	*tb = append(*tb, r)
	t.Log(r)
}

func (r row) String() string {
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %.1f s |",
		r.what, r.of(sameNode), r.of(otherNode), r.of(toService), r.of(toOutside), r.of(inTenant), r.took.Seconds())
}

// of is a way's cell: what was lost, and for how long the worse family was interrupted.
func (r row) of(way string) string {
	var worst outcome
	lost, sent, broken := 0, 0, ""
	for _, f := range families {
		o, ok := r.outcomes[way+" "+string(f)]
		if !ok {
			return "–"
		}
		lost, sent = lost+len(o.udp.Lost), sent+o.udp.Sent
		worst.udp.Gap = max(worst.udp.Gap, o.udp.Gap)
		worst.tcp.Slow = max(worst.tcp.Slow, o.tcp.Slow)
		if o.tcp.Err != nil {
			broken += fmt.Sprintf(", %s connection broken", f)
		}
	}
	if lost == 0 {
		return fmt.Sprintf("0 of %d%s", sent, broken)
	}
	return fmt.Sprintf("%d of %d; gap %.2f s, TCP %.2f s%s", lost, sent, worst.udp.Gap.Seconds(), worst.tcp.Slow.Seconds(), broken)
}

// write puts the table into the file, or on standard output if no file is named.
func (tb table) write(file string) error {
	if len(tb) == 0 {
		return nil
	}
	var b strings.Builder
	b.WriteString("\n| What | Same node | Other node | Service | Outside | In a tenant | Back after |\n|---|---|---|---|---|---|---|\n")
	for _, r := range tb {
		fmt.Fprintln(&b, r)
	}
	if file == "" {
		_, err := os.Stdout.WriteString(b.String())
		return err
	}
	return os.WriteFile(file, []byte(b.String()), 0o644)
}
