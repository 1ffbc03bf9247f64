package guests

import (
	"math/rand/v2"
	"strings"
)

// Schedules returns valid schedule expressions, and invalid expressions that
// look almost valid.
func Schedules() []string {
	all := []string{
		"* * * * *", " 0\t3 * * mon-fri ", "*/15 8-18/2 1,15 JAN-Mar,dec 7", "0 0 29 2 *", "0 0 31 2 mon", "0 0 */31 2 tue", "5/10 * * * *",
		"007 0 1 1 sat", "@daily", "@midnight", "@yearly", "@annually", "@monthly", "@weekly", "@hourly", "@every 100ms", "@every 1h30m",
		"@every +.5h1.5s", "@every 1.h", "@every 87840h", "@every 100000µs", "@every 100000μs", "@every 100000000ns", "0 0 29 2 */7", "0 0 30 2 *",
		"", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "5-1 * * * *", "*/0 * * * *",
		"*/-1 * * * *", "*/60 * * * *", "+1 * * * *", "1, * * * *", "1-2-3 * * * *", "1/2/3 * * * *", "*-5 * * * *", "** * * * *", "0001 * * * *",
		"* * * * unm", "mon * * * *", "* * * * mon-sun", "* * * * sun-mon", "0 0 31 2 *", "0 0 */31 2 mon", "0 0 31 4,6,9,11 *", "@reboot", "@Daily",
		"@daily ", "@every", "@every ", "@every +", "@every 1ms", "@every 87841h", "@every -5s", "@every 5", "@every 1d", "@every 1.2.3s", "@every .s",
		"@every 1 s", "@every 1S", "ü * * * *", strings.Repeat("0,", 200) + "0 * * * *", strings.Repeat("0,", 122) + "0 0 1 1 *",
		strings.Repeat("0,", 123) + "0 0 1 1 *", strings.Repeat("µ", 130),
	}
	for _, name := range strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec sun mon tue wed thu fri sat") {
		all = append(all, "0 0 1 "+name+" *", "0 0 1 1 "+name)
	}
	// Each day of the month in each month, on each weekday.
	for _, month := range []string{"2", "4", "1"} {
		for _, day := range []string{"*/28", "*/29", "*/30", "*/31", "28", "29", "30", "31"} {
			for _, weekday := range strings.Split("0123456*", "") {
				all = append(all, "0 0 "+day+" "+month+" "+weekday)
			}
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	parts := []string{"*", "0", "1", "7", "12", "31", "59", "mon", "FEB", "/", "-", ",", "2", "*/2", "1-5", " "}
	for range 500 {
		fields := []string{"*", "*", "*", "*", "*"}
		var field strings.Builder
		for range 1 + r.IntN(4) {
			field.WriteString(parts[r.IntN(len(parts))])
		}
		fields[r.IntN(5)], fields[r.IntN(5)] = field.String(), parts[r.IntN(len(parts))]
		all = append(all, strings.Join(fields, " "))
	}
	return all
}
