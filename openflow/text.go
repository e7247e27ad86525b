// SPDX-License-Identifier: Apache-2.0

package openflow

import "strconv"

// utoa prints n in decimal.
func utoa[T ~uint8 | ~uint16 | ~uint32 | ~uint64](n T) string {
	return strconv.FormatUint(uint64(n), 10)
}

// hexBytes prints bytes such as 01.0a.ff, as ovs-ofctl does.
func hexBytes(s string) string {
	const digits = "0123456789abcdef"
	b := make([]byte, 0, 3*len(s))
	for i := range len(s) {
		if i > 0 {
			b = append(b, '.')
		}
		b = append(b, digits[s[i]>>4], digits[s[i]&15])
	}
	return string(b)
}
