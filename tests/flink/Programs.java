import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.flink.api.common.functions.*;
import org.apache.flink.api.common.state.*;
import org.apache.flink.api.common.typeinfo.*;
import org.apache.flink.api.java.tuple.*;
import org.apache.flink.cep.*;
import org.apache.flink.cep.functions.*;
import org.apache.flink.cep.nfa.aftermatch.AfterMatchSkipStrategy;
import org.apache.flink.cep.pattern.MalformedPatternException;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.conditions.IterativeCondition;
import org.apache.flink.configuration.*;
import org.apache.flink.runtime.minicluster.*;
import org.apache.flink.runtime.state.*;
import org.apache.flink.runtime.state.hashmap.HashMapStateBackend;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.*;
import org.apache.flink.streaming.api.datastream.*;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.functions.windowing.delta.DeltaFunction;
import org.apache.flink.streaming.api.operators.*;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.api.windowing.assigners.*;
import org.apache.flink.streaming.api.windowing.evictors.*;
import org.apache.flink.streaming.api.windowing.triggers.*;
import org.apache.flink.streaming.api.windowing.windows.*;
import org.apache.flink.streaming.api.transformations.OneInputTransformation;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.tasks.*;
import org.apache.flink.util.*;
import org.apache.flink.util.clock.*;

/**
 * Runs programs as Flink jobs: reads one a line as JSON, and prints its rows as a line of JSON.
 *
 * <p>A program is a keyed operator and the steps of its input: rows, watermarks, and moments of the
 * clock. All of a job runs in one thread, so that each row of its output belongs to a step.
 */
@SuppressWarnings({"unchecked", "rawtypes", "deprecation"})
public class Programs {
    /** A row: its key, its number, and what a keyed function is to do. */
    public static class Event {
        public String key = "", operations = "";
        public long number;

        public Event() {}

        Event(String key, long number, String operations) {
            this.key = key;
            this.number = number;
            this.operations = operations;
        }
    }

    static final ObjectMapper JSON = new ObjectMapper();
    static final TypeInformation<Event> EVENT = TypeInformation.of(Event.class);
    static final TypeInformation PAIR = Types.TUPLE(Types.LONG, Types.LONG);
    static final OutputTag<Event> SIDE = new OutputTag<>("side", EVENT);

    static HandClock clock;
    static int step;
    static List<Object> rows, side;

    public static void main(String[] arguments) throws Exception {
        var configuration = new MiniClusterConfiguration.Builder().setNumSlotsPerTaskManager(1);
        try (var cluster = new MiniCluster(configuration.build())) {
            cluster.start();
            for (var in = new Scanner(System.in); in.hasNextLine(); ) {
                clock = new HandClock();
                rows = new ArrayList<>();
                side = new ArrayList<>();
                Map<String, Object> result = new HashMap<>(Map.of("rows", rows, "side", side));
                try {
                    cluster.executeJobBlocking(job(JSON.readTree(in.nextLine())));
                } catch (org.apache.flink.runtime.client.JobExecutionException | MalformedPatternException error) {
                    result.put("error", ExceptionUtils.stringifyException(error));
                }
                System.out.println(JSON.writeValueAsString(result));
            }
        }
    }

    static org.apache.flink.runtime.jobgraph.JobGraph job(JsonNode program) {
        var configuration = new Configuration();
        configuration.set(StateBackendOptions.STATE_BACKEND, HandBackend.class.getName());
        var made = new StreamExecutionEnvironment();
        var operator = operator(program, made.fromData(EVENT, new Event()).keyBy(row -> row.key));
        var factory = ((OneInputTransformation) operator.getTransformation()).getOperatorFactory();

        var job = new StreamExecutionEnvironment(configuration).setParallelism(1);
        var steps = job.fromData(program.get("steps").toString()).transform("steps", EVENT, new Steps());
        var keyed = DataStreamUtils.reinterpretAsKeyedStream(steps, row -> row.key, Types.STRING);
        var output = keyed.transform("program", Types.STRING, new Clocked(factory));
        output.map((MapFunction) new Kept(false), Types.STRING).sinkTo(new DiscardingSink());
        output.getSideOutput(SIDE).map((MapFunction) new Kept(true), Types.STRING).sinkTo(new DiscardingSink());
        return job.getStreamGraph().getJobGraph();
    }

    static SingleOutputStreamOperator operator(JsonNode program, KeyedStream<Event, String> keyed) {
        if (program.has("timers")) {
            return keyed.process(new Operations(program.toString()), Types.STRING);
        }
        if (program.has("stages")) {
            return search(program, keyed);
        }
        var windows = keyed.window(assigner(program.get("assigner")));
        windows.allowedLateness(Duration.ofMillis(program.get("lateness").asLong()));
        if (program.get("late").asBoolean()) windows.sideOutputLateData(SIDE);
        if (!program.get("trigger").isNull()) windows.trigger(trigger(program.get("trigger")));
        if (!program.get("evictor").isNull()) windows.evictor(evictor(program.get("evictor")));
        var fired = new Fired(program.get("merging").asBoolean());
        return switch (program.get("contents").asText()) {
            case "reduce" -> windows.reduce(new Sum(), fired, Types.STRING);
            case "aggregate" -> windows.aggregate(new Mean(), fired, PAIR, PAIR, Types.STRING);
            default -> windows.process(fired, Types.STRING);
        };
    }

    // ------------------------------------------------------------ parts of windows

    static WindowAssigner assigner(JsonNode of) {
        Duration size = millis(of, "size"), slide = millis(of, "slide"), offset = millis(of, "offset");
        Duration gap = millis(of, "gap");
        long most = of.path("gap").path("most").asLong();
        return switch (type(of)) {
            case "TumblingEventTimeWindows" -> TumblingEventTimeWindows.of(size, offset);
            case "TumblingProcessingTimeWindows" -> TumblingProcessingTimeWindows.of(size, offset);
            case "SlidingEventTimeWindows" -> SlidingEventTimeWindows.of(size, slide, offset);
            case "SlidingProcessingTimeWindows" -> SlidingProcessingTimeWindows.of(size, slide, offset);
            case "EventTimeSessionWindows" -> most == 0
                ? EventTimeSessionWindows.withGap(gap)
                : EventTimeSessionWindows.withDynamicGap((Event row) -> row.number % most + 1);
            case "ProcessingTimeSessionWindows" -> most == 0
                ? ProcessingTimeSessionWindows.withGap(gap)
                : ProcessingTimeSessionWindows.withDynamicGap((Event row) -> row.number % most + 1);
            default -> GlobalWindows.create();
        };
    }

    static Trigger trigger(JsonNode of) {
        return switch (type(of)) {
            case "EventTimeTrigger" -> EventTimeTrigger.create();
            case "ProcessingTimeTrigger" -> ProcessingTimeTrigger.create();
            case "CountTrigger" -> CountTrigger.of(of.get("max_count").asLong());
            case "ContinuousEventTimeTrigger" -> ContinuousEventTimeTrigger.of(millis(of, "interval"));
            case "ContinuousProcessingTimeTrigger" ->
                ContinuousProcessingTimeTrigger.of(millis(of, "interval"));
            case "DeltaTrigger" -> DeltaTrigger.of(
                of.get("threshold").asDouble(),
                (DeltaFunction<Event>) (a, b) -> difference(a, b),
                EVENT.createSerializer(new org.apache.flink.api.common.serialization.SerializerConfigImpl()));
            case "PurgingTrigger" -> PurgingTrigger.of(trigger(of.get("inner")));
            case "ProcessingTimeoutTrigger" -> ProcessingTimeoutTrigger.of(
                trigger(of.get("inner")),
                millis(of, "timeout"),
                of.get("reset_timer_on_new_record").asBoolean(),
                of.get("should_clear_on_timeout").asBoolean());
            default -> throw new IllegalArgumentException(of.toString());
        };
    }

    static Evictor evictor(JsonNode of) {
        boolean after = of.get("do_evict_after").asBoolean();
        return switch (type(of)) {
            case "CountEvictor" -> CountEvictor.of(of.get("max_count").asLong(), after);
            case "TimeEvictor" -> TimeEvictor.of(millis(of, "size"), after);
            case "DeltaEvictor" -> DeltaEvictor.of(
                of.get("threshold").asDouble(),
                (DeltaFunction<Event>) (a, b) -> Math.abs(difference(a, b)) / 9,
                after);
            default -> throw new IllegalArgumentException(of.toString());
        };
    }

    static String type(JsonNode of) {
        return of.get("type").asText();
    }

    static Duration millis(JsonNode of, String field) {
        return Duration.ofMillis(of.path(field).asLong());
    }

    static double difference(Event a, Event b) {
        return (a.number + b.number) % 5 == 0 ? Double.NaN : b.number - a.number;
    }

    static class Sum implements ReduceFunction<Event> {
        public Event reduce(Event a, Event b) {
            return new Event(a.key, a.number + b.number, "");
        }
    }

    static class Mean implements AggregateFunction<Event, Tuple2<Long, Long>, Tuple2<Long, Long>> {
        public Tuple2<Long, Long> createAccumulator() {
            return Tuple2.of(0L, 0L);
        }

        public Tuple2<Long, Long> add(Event row, Tuple2<Long, Long> sum) {
            return Tuple2.of(sum.f0 + 1, sum.f1 + row.number);
        }

        public Tuple2<Long, Long> getResult(Tuple2<Long, Long> sum) {
            return sum;
        }

        public Tuple2<Long, Long> merge(Tuple2<Long, Long> a, Tuple2<Long, Long> b) {
            return Tuple2.of(a.f0 + b.f0, a.f1 + b.f1);
        }
    }

    /** Gives the contents of a window, how often it has fired, and the times. */
    static class Fired extends ProcessWindowFunction<Object, String, String, Window> {
        static final ReducingStateDescriptor<Long> TIMES =
            new ReducingStateDescriptor<>("times", Long::sum, Types.LONG);
        final boolean merging;

        Fired(boolean merging) {
            this.merging = merging;
        }

        public void process(String key, Context context, Iterable<Object> elements, Collector<String> out)
                throws Exception {
            List<Object> shown = new ArrayList<>();
            for (Object each : elements) {
                if (each == null) return; // the sum of no rows
                shown.add(each instanceof Event row ? row.number : List.of(((Tuple2) each).f0, ((Tuple2) each).f1));
            }
            Long fired = null;
            if (merging && shown.size() > 1) {
                Collections.sort((List) shown); // the order in merged windows is unspecified
            } else if (!merging) {
                context.windowState().getReducingState(TIMES).add(1L);
                fired = context.windowState().getReducingState(TIMES).get();
            }
            var window = context.window() instanceof TimeWindow time
                ? List.of(time.getStart(), time.getEnd())
                : List.of(Long.MIN_VALUE, Long.MAX_VALUE);
            long watermark = context.currentWatermark(), now = context.currentProcessingTime();
            out.collect(json(step, key, window, fired, watermark, now, shown));
        }

        public void clear(Context context) {
            if (!merging) context.windowState().getReducingState(TIMES).clear();
        }
    }

    // ------------------------------------------------------------ patterns

    static SingleOutputStreamOperator search(JsonNode program, KeyedStream<Event, String> keyed) {
        Pattern pattern = null;
        for (JsonNode of : program.get("stages")) {
            String name = of.get("name").asText();
            pattern = switch (of.get("method").asText()) {
                case "begin" -> Pattern.begin(name, skip(program.get("skip")));
                case "next" -> pattern.next(name);
                case "followed_by" -> pattern.followedBy(name);
                case "followed_by_any" -> pattern.followedByAny(name);
                case "not_next" -> pattern.notNext(name);
                default -> pattern.notFollowedBy(name);
            };
            if (of.hasNonNull("kinds")) {
                pattern = pattern.where(new Fits(of.get("kinds").asText(), of.path("unlike").asText()));
            }
            int least = of.get("least").asInt(), most = of.path("most").asInt();
            if (most != 1) {
                pattern = most == 0 ? pattern.timesOrMore(least) : pattern.times(least, most);
            }
            String inner = of.get("inner").asText();
            if (inner.equals("consecutive")) pattern = pattern.consecutive();
            if (inner.equals("allow_combinations")) pattern = pattern.allowCombinations();
            if (of.get("greedy").asBoolean()) pattern = pattern.greedy();
            if (of.get("optional").asBoolean()) pattern = pattern.optional();
        }
        if (program.hasNonNull("within")) pattern = pattern.within(millis(program, "within"));
        PatternStream<Event> stream = CEP.pattern(keyed, (Pattern<Event, ?>) pattern);
        stream = program.get("by_event").asBoolean() ? stream.inEventTime() : stream.inProcessingTime();
        return stream.sideOutputLateData(SIDE).process(new Matches(), Types.STRING);
    }

    static AfterMatchSkipStrategy skip(JsonNode of) {
        String stage = of.path(1).asText();
        return switch (of.get(0).asText()) {
            case "no_skip" -> AfterMatchSkipStrategy.noSkip();
            case "to_next" -> AfterMatchSkipStrategy.skipToNext();
            case "past_last_event" -> AfterMatchSkipStrategy.skipPastLastEvent();
            case "to_first" -> AfterMatchSkipStrategy.skipToFirst(stage);
            default -> AfterMatchSkipStrategy.skipToLast(stage);
        };
    }

    /** The conditions `Kinds` and `Unlike`; the operations of a row are its kind as JSON. */
    static class Fits extends IterativeCondition<Event> {
        final String kinds, stage;

        Fits(String kinds, String stage) {
            this.kinds = kinds;
            this.stage = stage;
        }

        public boolean filter(Event row, Context<Event> context) throws Exception {
            if (kinds.indexOf(row.operations.charAt(1)) < 0) return false;
            if (!stage.isEmpty()) {
                for (Event each : context.getEventsForPattern(stage)) {
                    if (each.number % 5 == row.number % 5) return false;
                }
            }
            return true;
        }
    }

    /** Gives the numbers of a match's rows; those of a timed-out match aside. */
    static class Matches extends PatternProcessFunction<Event, String>
            implements TimedOutPartialMatchHandler<Event> {
        public void processMatch(Map<String, List<Event>> match, Context context, Collector<String> out) {
            out.collect(json(step, match.values().iterator().next().get(0).key, numbers(match)));
        }

        public void processTimedOutMatch(Map<String, List<Event>> match, Context context) throws Exception {
            String key = match.values().iterator().next().get(0).key;
            side.add(JSON.readTree(json(step, key, numbers(match))));
        }

        static Map<String, List<Long>> numbers(Map<String, List<Event>> match) {
            var found = new TreeMap<String, List<Long>>();
            match.forEach((name, rows) -> found.put(name, rows.stream().map(row -> row.number).toList()));
            return found;
        }
    }

    // ------------------------------------------------------------ keyed functions

    /** Does what rows say, and on timers what the program says. */
    static class Operations extends KeyedProcessFunction<String, Event, String> {
        final String program;
        transient JsonNode timers;
        transient ValueState<Long> value;
        transient ListState<Long> list;
        transient MapState<Long, Long> map;
        transient ReducingState<Long> sum;
        transient AggregatingState<Event, Tuple2<Long, Long>> mean;

        Operations(String program) {
            this.program = program;
        }

        public void open(OpenContext context) throws Exception {
            JsonNode of = JSON.readTree(program);
            timers = of.get("timers");
            var states = getRuntimeContext();
            value = states.getState(expiring(of, new ValueStateDescriptor<>("value", Types.LONG)));
            list = states.getListState(expiring(of, new ListStateDescriptor<>("list", Types.LONG)));
            map = states.getMapState(
                expiring(of, new MapStateDescriptor<>("map", Types.LONG, Types.LONG)));
            sum = states.getReducingState(
                expiring(of, new ReducingStateDescriptor<>("sum", Long::sum, Types.LONG)));
            mean = states.getAggregatingState(
                expiring(of, new AggregatingStateDescriptor<>("mean", new Mean(), PAIR)));
        }

        static <D extends StateDescriptor> D expiring(JsonNode program, D descriptor) {
            JsonNode of = program.get("ttl");
            if (!of.isNull()) {
                descriptor.enableTimeToLive(
                    StateTtlConfig.newBuilder(millis(of, "ms"))
                        .setUpdateType(StateTtlConfig.UpdateType.valueOf(of.get("update").asText()))
                        .setStateVisibility(
                            StateTtlConfig.StateVisibility.valueOf(of.get("visibility").asText()))
                        .disableCleanupInBackground()
                        .build());
            }
            return descriptor;
        }

        public void processElement(Event row, Context context, Collector<String> out) throws Exception {
            run(JSON.readTree(row.operations), "row", context.timestamp(), context, out);
        }

        public void onTimer(long time, OnTimerContext context, Collector<String> out) throws Exception {
            var operations = timers.get((int) Math.floorMod(time, (long) timers.size()));
            run(operations, context.timeDomain().name(), time, context, out);
        }

        void run(JsonNode operations, String cause, long time, Context context, Collector<String> out)
                throws Exception {
            var times = context.timerService();
            long watermark = times.currentWatermark(), now = times.currentProcessingTime();
            List<Object> read = new ArrayList<>();
            for (JsonNode each : operations) {
                long n = each.path(1).asLong();
                switch (each.get(0).asText()) {
                    case "value" -> read.add(value.value());
                    case "value update" -> value.update(n);
                    case "value clear" -> value.clear();
                    case "list" -> read.add(all(list.get()));
                    case "list add" -> list.add(n);
                    case "list add_all" -> list.addAll(List.of(n, n + 1));
                    case "list update" -> list.update(n % 3 == 0 ? List.of() : List.of(n));
                    case "list clear" -> list.clear();
                    case "map get" -> read.add(map.get(n % 4));
                    case "map contains" -> read.add(map.contains(n % 4));
                    case "map items" -> {
                        var items = new TreeMap<Long, Long>();
                        for (var entry : map.entries()) items.put(entry.getKey(), entry.getValue());
                        read.add(all(items.entrySet().stream().map(e -> List.of(e.getKey(), e.getValue())).toList()));
                    }
                    case "map is_empty" -> read.add(map.isEmpty());
                    case "map put" -> map.put(n % 4, n);
                    case "map put_all" -> map.putAll(Map.of(n % 4, n, (n + 1) % 4, n));
                    case "map remove" -> map.remove(n % 4);
                    case "map clear" -> map.clear();
                    case "sum" -> read.add(sum.get());
                    case "sum add" -> sum.add(n);
                    case "sum clear" -> sum.clear();
                    case "mean" -> {
                        var pair = mean.get();
                        read.add(pair == null ? null : List.of(pair.f0, pair.f1));
                    }
                    case "mean add" -> mean.add(new Event("", n, ""));
                    case "mean clear" -> mean.clear();
                    // Up to the end of time, and from the clock's small times to those of rows, timers
                    // that set the next one would be too many.
                    case "event set" -> {
                        if (watermark < Long.MAX_VALUE && !cause.equals("PROCESSING_TIME")) times.registerEventTimeTimer(time + n);
                    }
                    case "event delete" -> times.deleteEventTimeTimer(time + n);
                    case "clock set" -> times.registerProcessingTimeTimer(now + n);
                    case "clock delete" -> times.deleteProcessingTimeTimer(now + n);
                    case "side" -> context.output(SIDE, new Event(context.getCurrentKey(), n, ""));
                    default -> throw new IllegalArgumentException(each.toString());
                }
            }
            out.collect(json(step, context.getCurrentKey(), cause, time, watermark, now, read));
        }

        static List<Object> all(Iterable<?> values) {
            List<Object> found = new ArrayList<>();
            if (values != null) values.forEach(found::add);
            return found;
        }
    }

    // ------------------------------------------------------------ steps and time

    static String json(Object... row) {
        try {
            return JSON.writeValueAsString(Arrays.asList(row));
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    /** Keeps rows of the output, or of the side output. */
    static class Kept implements MapFunction<Object, String> {
        final boolean aside;

        Kept(boolean aside) {
            this.aside = aside;
        }

        public String map(Object row) throws Exception {
            String line = row instanceof Event late ? json(step, late.key, late.number) : (String) row;
            (aside ? side : rows).add(JSON.readTree(line));
            return line;
        }
    }

    /** Does the steps, which it gets as one element. */
    static class Steps extends AbstractStreamOperator<Event>
            implements OneInputStreamOperator<String, Event> {
        public void processElement(StreamRecord<String> element) throws Exception {
            JsonNode steps = JSON.readTree(element.getValue());
            long watermark = Long.MIN_VALUE;
            for (step = 0; step < steps.size(); step++) {
                JsonNode each = steps.get(step);
                switch (each.get(0).asText()) {
                    case "row" -> {
                        var row = new Event(each.get(1).asText(), each.get(2).asLong(), each.path(4).toString());
                        output.collect(each.get(3).isNull()
                            ? new StreamRecord<>(row) : new StreamRecord<>(row, each.get(3).asLong()));
                    }
                    case "watermark" -> {
                        if (each.get(1).asLong() > watermark) {
                            watermark = each.get(1).asLong();
                            output.emitWatermark(new Watermark(watermark));
                        }
                    }
                    default -> clock.advance(each.get(1).asLong());
                }
            }
        }
    }

    /** Makes an operator whose processing time is the clock by hand. */
    static class Clocked extends AbstractStreamOperatorFactory<String>
            implements OneInputStreamOperatorFactory<Event, String> {
        final StreamOperatorFactory<String> factory;

        Clocked(StreamOperatorFactory<String> factory) {
            this.factory = factory;
            setChainingStrategy(ChainingStrategy.ALWAYS);
        }

        public <T extends StreamOperator<String>> T createStreamOperator(StreamOperatorParameters<String> given) {
            if (factory instanceof ProcessingTimeServiceAware aware) aware.setProcessingTimeService(clock);
            return factory.createStreamOperator(new StreamOperatorParameters<>(
                given.getContainingTask(), given.getStreamConfig(), given.getOutput(), () -> clock,
                given.getOperatorEventDispatcher(), given.getMailboxExecutor()));
        }

        public Class<? extends StreamOperator> getStreamOperatorClass(ClassLoader loader) {
            return factory.getStreamOperatorClass(loader);
        }
    }

    /** Processing time by hand: a timer is due once the clock has passed its time, as in Flink. */
    static class HandClock implements ProcessingTimeService {
        final ManualClock time = new ManualClock();
        final PriorityQueue<Due> timers = new PriorityQueue<>();

        void advance(long to) throws Exception {
            time.advanceTime(Duration.ofMillis(Math.max(to - time.absoluteTimeMillis(), 0)));
            while (!timers.isEmpty() && timers.peek().time < time.absoluteTimeMillis()) {
                Due due = timers.poll();
                due.run();
                if (!due.isCancelled()) due.get();
            }
        }

        public Clock getClock() {
            return time;
        }

        public ScheduledFuture<?> registerTimer(long time, ProcessingTimeCallback callback) {
            var due = new Due(time, callback);
            timers.add(due);
            return due;
        }

        public ScheduledFuture<?> scheduleAtFixedRate(ProcessingTimeCallback callback, long delay, long period) {
            throw new UnsupportedOperationException();
        }

        public ScheduledFuture<?> scheduleWithFixedDelay(ProcessingTimeCallback callback, long delay, long period) {
            throw new UnsupportedOperationException();
        }

        public CompletableFuture<Void> quiesce() {
            return CompletableFuture.completedFuture(null);
        }
    }

    static class Due extends FutureTask<Void> implements ScheduledFuture<Void> {
        final long time;

        Due(long time, org.apache.flink.api.common.operators.ProcessingTimeService.ProcessingTimeCallback callback) {
            super(() -> {
                callback.onProcessingTime(time);
                return null;
            });
            this.time = time;
        }

        public long getDelay(TimeUnit unit) {
            return unit.convert(time, TimeUnit.MILLISECONDS);
        }

        public int compareTo(Delayed other) {
            return Long.compare(time, ((Due) other).time);
        }
    }

    /** Flink's state on the heap, which expires by the clock by hand. */
    public static class HandBackend extends HashMapStateBackend implements StateBackendFactory<HandBackend> {
        public HandBackend createFromConfig(ReadableConfig config, ClassLoader loader) {
            return this;
        }

        public <K> AbstractKeyedStateBackend<K> createKeyedStateBackend(KeyedStateBackendParameters<K> given)
                throws java.io.IOException {
            return super.createKeyedStateBackend(new KeyedStateBackendParametersImpl<>(given)
                .setTtlTimeProvider(() -> clock.getCurrentProcessingTime()));
        }
    }
}
